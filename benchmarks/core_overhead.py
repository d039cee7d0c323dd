"""CPU that the batching core takes for each row, without a model: ``python -m benchmarks.core_overhead``.

A null executor finishes each batch at once, so that what is left is the core: making the item, admission,
queue, planner, batch, delivery and the call of ``on_done``. Target: at most 8 us for each row at 32 rows a
batch. CPU time of this process is what is measured, and the median of several rounds is printed.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from server.batching import Batch, Batcher, CostTable, Group, Item, Policy, QueueLimits, plan

#: A call costs a lot and a row little, so that the rows of a tick and group run as one batch up to 64.
COSTS_S = {bucket: 100e-6 + bucket * 1e-6 for bucket in (1, 2, 4, 8, 16, 32, 64)}
TARGET_US = 8.0


class NullExecutor:
    """Runs nothing, and finishes one batch at a time when asked to."""

    def __init__(self) -> None:
        self.running: Batch | None = None
        self.n_batches = 0

    def free(self) -> int:
        return 0 if self.running is not None else 1

    def start(self, batch: Batch) -> None:
        self.running = batch
        self.n_batches += 1

    def finish(self, batcher: Batcher) -> bool:
        batch, self.running = self.running, None
        if batch is not None:
            batcher.finished(batch, None, None)
        return batch is not None


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is sent: ``n_rows`` a tick over ``n_groups``, timeouts taken in turn; one in ``cancel_each`` cancelled."""

    name: str
    n_rows: int = 32
    n_groups: int = 1
    timeouts_s: tuple[float, ...] = (30.0,)
    cancel_each: int = 0


LOADS = (
    Load(name="batches of 1", n_rows=1),
    Load(name="batches of 8", n_rows=8),
    Load(name="batches of 32"),
    Load(name="batches of 64", n_rows=64),
    Load(name="64 groups of 32 rows", n_rows=64 * 32, n_groups=64),
    Load(name="mixed timeouts, 32 rows", timeouts_s=(30.0, 1.0, 5.0, 20.0)),
    Load(name="a quarter cancelled, of 32", cancel_each=4),
)


def null_done(item: Item) -> None:
    """Take the answer."""


def cpu_s_of(load: Load, *, n_rows: int) -> tuple[float, float]:
    """Send ``n_rows`` rows and return the CPU seconds for each row, and the rows of the mean batch."""
    executor = NullExecutor()
    deferred: list[Callable[[], None]] = []
    batcher = Batcher(
        clock=time.monotonic, executor=executor, defer=deferred.append, limits=QueueLimits(max_rows=1_000_000)
    )
    groups = [Group(index, CostTable(COSTS_S)) for index in range(load.n_groups)]
    timeouts_s, n_timeouts = load.timeouts_s, len(load.timeouts_s)
    n_ticks = max(1, n_rows // load.n_rows)
    gc.collect()
    start_s = time.process_time()
    for _ in range(n_ticks):
        now_s = time.monotonic()
        for index in range(load.n_rows):
            item = Item(
                groups[index % load.n_groups],
                1,
                None,
                arrived_s=now_s,
                deadline_s=now_s + timeouts_s[index % n_timeouts],
                on_done=null_done,
            )
            batcher.submit(item)
            if load.cancel_each and not index % load.cancel_each:
                batcher.cancel(item)
        callbacks, deferred[:] = deferred[:], []
        for callback in callbacks:
            callback()
        while executor.finish(batcher):
            pass
    elapsed_s = time.process_time() - start_s
    return elapsed_s / (n_ticks * load.n_rows), n_ticks * load.n_rows / executor.n_batches


def plan_s(n_groups: int, *, n_calls: int) -> float:
    """Return the CPU seconds of one decision over ``n_groups`` waiting groups."""
    groups = [Group(index, CostTable(COSTS_S)) for index in range(n_groups)]
    for group in groups:
        for _ in range(32):
            group.push(Item(group, 1, None, arrived_s=0.0, deadline_s=30.0, on_done=null_done))
    policy = Policy()
    plan(groups, policy, 0.0, 1)
    start_s = time.process_time()
    for _ in range(n_calls):
        plan(groups, policy, 0.0, 1)
    return (time.process_time() - start_s) / n_calls


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU of the batching core for each row, with a null executor.")
    parser.add_argument("--rows", type=int, default=40_000, help="rows of each round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the median is printed (default: %(default)s)")
    options = parser.parse_args()

    print(f"{'load':<28} {'us/row':>8} {'rows/batch':>11}")
    for load in LOADS:
        rounds = [cpu_s_of(load, n_rows=options.rows) for _ in range(options.rounds)]
        us = statistics.median(cpu_s for cpu_s, _ in rounds) * 1e6
        verdict = ""
        if load.name == "batches of 32":
            verdict = f"  target {TARGET_US:g} us: {'met' if us <= TARGET_US else 'MISSED'}"
        print(f"{load.name:<28} {us:>8.2f} {rounds[0][1]:>11.1f}{verdict}")
    print(f"\n{'one decision of the planner':<28} {'us':>8}")
    for n_groups in (1, 10, 100):
        us = statistics.median(plan_s(n_groups, n_calls=2_000) for _ in range(options.rounds)) * 1e6
        print(f"{f'{n_groups} waiting groups':<28} {us:>8.2f}")


if __name__ == "__main__":
    main()

"""Stand-ins for what the core asks of its surroundings. Each does one thing and can be driven by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from server.batching import Batch, Batcher, CostTable, Group, Item, Observer, Policy, QueueLimits, RowErrors

#: A small model: padding up to 8 costs little, the largest bucket has the best throughput.
SMALL_COSTS = {1: 1.0, 2: 1.2, 4: 1.6, 8: 2.4}


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_s: float = 100.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds


class ManualTicks:
    """Collects what was deferred; ``run`` ends the event-loop tick."""

    def __init__(self) -> None:
        self.deferred: list[Callable[[], None]] = []

    def __call__(self, callback: Callable[[], None]) -> None:
        self.deferred.append(callback)

    def run(self) -> None:
        callbacks, self.deferred = self.deferred, []
        for callback in callbacks:
            callback()


@dataclass(frozen=True)
class Ran:
    """What a batch was when it started: the core empties ``spans`` later."""

    batch: Batch
    spans: tuple[tuple[Item, int, int], ...]
    now_s: float

    def rows(self) -> list[tuple[object, int]]:
        """Payload and row number of each row, in batch order."""
        return [(item.payload, row) for item, start, stop in self.spans for row in range(start, stop)]


class InlineExecutor:
    """Runs a batch inside ``start``. Its outputs are the batch's rows: (payload, row) each."""

    def __init__(self, clock: ManualClock) -> None:
        self.batcher: Batcher | None = None
        self.clock = clock
        self.ran: list[Ran] = []
        self.error: BaseException | None = None

    def free(self) -> int:
        return 1

    def start(self, batch: Batch) -> None:
        assert self.batcher is not None
        self.ran.append(ran := Ran(batch, tuple(batch.spans), self.clock()))
        self.batcher.finished(batch, None if self.error else ran.rows(), self.error)


class ManualExecutor:
    """Holds up to ``lanes`` batches until the test finishes them, in any order."""

    def __init__(self, clock: ManualClock, lanes: int = 1) -> None:
        self.batcher: Batcher | None = None
        self.clock = clock
        self.lanes = lanes
        self.ran: list[Ran] = []
        self.running: list[Ran] = []
        self.refusal: Exception | None = None

    def free(self) -> int:
        return self.lanes - len(self.running)

    def start(self, batch: Batch) -> None:
        if self.refusal is not None:
            raise self.refusal
        assert self.free() > 0, "a batch was started on a busy executor"
        ran = Ran(batch, tuple(batch.spans), self.clock())
        self.ran.append(ran)
        self.running.append(ran)

    def finish(self, index: int = 0, *, error: BaseException | None = None) -> None:
        assert self.batcher is not None
        ran = self.running.pop(index)
        has_outputs = error is None or isinstance(error, RowErrors)
        self.batcher.finished(ran.batch, ran.rows() if has_outputs else None, error)

    def finish_all(self) -> None:
        while self.running:
            self.finish()


@dataclass
class RecordingObserver:
    """Remembers what it was told."""

    dispatched_ids: list[int] = field(default_factory=list)
    finished_ids: list[int] = field(default_factory=list)
    dropped_items: list[Item] = field(default_factory=list)

    def dispatched(self, batch: Batch) -> None:
        self.dispatched_ids.append(batch.id)

    def finished(self, batch: Batch, error: BaseException | None) -> None:
        assert batch.spans
        assert not math.isnan(batch.finished_s)
        self.finished_ids.append(batch.id)

    def dropped(self, item: Item) -> None:
        assert item.error is not None
        self.dropped_items.append(item)


class RaisingObserver:
    """Fails at every step."""

    def dispatched(self, batch: Batch) -> None:
        raise RuntimeError("dispatched")

    def finished(self, batch: Batch, error: BaseException | None) -> None:
        raise RuntimeError("finished")

    def dropped(self, item: Item) -> None:
        raise RuntimeError("dropped")


class Bench:
    """A batcher with its doubles, one group and short ways to do what tests do all the time."""

    def __init__(
        self,
        *,
        lanes: int = 1,
        inline: bool = False,
        costs: dict[int, float] | None = None,
        max_rows: int = 4_096,
        observer: Observer | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.ticks = ManualTicks()
        self.manual = ManualExecutor(self.clock, lanes)
        self.inline = InlineExecutor(self.clock)
        self.executor = self.inline if inline else self.manual
        self.observer = RecordingObserver()
        self.batcher = Batcher(
            clock=self.clock,
            executor=self.executor,
            defer=self.ticks,
            limits=QueueLimits(max_rows=max_rows),
            observer=self.observer if observer is None else observer,
            policy=policy,
        )
        self.executor.batcher = self.batcher
        self.group = Group("digits/1/predict", CostTable(costs or SMALL_COSTS), label="model 'digits'")
        self.answered: list[Item] = []

    def make(
        self,
        payload: object,
        n_rows: int = 1,
        *,
        timeout_s: float | None = None,
        group: Group | None = None,
        caller: str | None = None,
        row_bytes: int = 0,
        tag: object = None,
    ) -> Item:
        now_s = self.clock()
        return Item(
            group or self.group,
            n_rows,
            payload,
            arrived_s=now_s,
            deadline_s=None if timeout_s is None else now_s + timeout_s,
            on_done=self.answered.append,
            caller=caller,
            row_bytes=row_bytes,
            tag=tag,
        )

    def submit(
        self,
        payload: object,
        n_rows: int = 1,
        *,
        timeout_s: float | None = None,
        group: Group | None = None,
        caller: str | None = None,
        row_bytes: int = 0,
    ) -> Item:
        item = self.make(payload, n_rows, timeout_s=timeout_s, group=group, caller=caller, row_bytes=row_bytes)
        self.batcher.submit(item)
        return item

    @property
    def ran(self) -> list[Ran]:
        return self.executor.ran

    def payloads(self, index: int) -> list[object]:
        """Payloads of the items in the batch that ran as number ``index``."""
        return [item.payload for item, _, _ in self.ran[index].spans]


def result_of(item: Item) -> list[object]:
    """The item's rows, cut from the outputs of the batches they ran in, the way a shell does it."""
    assert item.error is None, item.error
    rows: list[object] = []
    for part in item.parts:
        assert part.start == len(rows)
        assert isinstance(part.outputs, list)
        rows += part.outputs[part.offset : part.offset + part.stop - part.start]
    return rows

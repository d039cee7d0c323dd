"""Forward models against the other ways to run them: ``python -m benchmarks.forward``.

All contenders of a model and batch size give the answers of the per-example function, which is checked first, and are
timed interleaved in one run. What runs in TensorFlow runs through the kind of session that the server uses, with one
thread; the other libraries' contenders run in processes of their own and are asked in turn.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.other_libraries import workers_for
from benchmarks.report import Line, write_report
from benchmarks.rounds import timed_in_rounds, timer_of
from benchmarks.sessions import callables_of
from benchmarks.targets import forward_verdicts
from server.thread_pools import keep_pools_apart

__all__ = ["main", "measure_line"]

BATCH_SIZES = (1, 8, 64)
#: Time for all rounds of one model and batch size, seconds.
BUDGET_S = 10.0


def measure_line(
    name: str, n_rows: int, *, sizes: tuple[int, ...], budget_s: float, only: tuple[str, ...] = ()
) -> Line:
    """Check and time all contenders on ``n_rows`` real examples, one of ``sizes``. ``only`` leaves out the others.

    Errors: AssertionError if a contender's answers differ from those of the per-example function.
    """
    from benchmarks.contenders import ONE_BY_ONE, graphs_of, said
    from benchmarks.workloads import WORKLOADS

    workload = WORKLOADS[name]
    batch = workload.batch(n_rows)
    graphs = graphs_of(workload, batch, sizes=sizes)
    kept = {key: graph for key, graph in graphs.made.items() if not only or key in (*only, ONE_BY_ONE)}
    missing = dict(graphs.missing)
    whole = list(batch.values())
    rows = [[_row(value, row) for value in whole] for row in range(n_rows)]
    with (
        callables_of(kept, inputs=list(batch), outputs=graphs.outputs) as calls,
        tempfile.TemporaryDirectory() as scratch,
    ):

        def one_by_one() -> list[np.ndarray]:
            answers = [calls[ONE_BY_ONE](*row) for row in rows]
            return [np.stack(column) for column in zip(*answers, strict=True)]

        expected = dict(zip(graphs.outputs, one_by_one(), strict=True))
        timers: dict[str, Any] = {}
        for key, call in calls.items():
            run = one_by_one if key == ONE_BY_ONE else (lambda call=call: call(*whole))
            try:
                answers = run()
            except Exception as error:  # noqa: BLE001 - what XLA can't compile is a result
                missing[key] = said(error)
                continue
            _check(key, dict(zip(graphs.outputs, answers, strict=True)), expected)
            timers[key] = timer_of(run)
        workers, absent = workers_for(name, not_in_xla=workload.not_in_xla) if not only else ({}, {})
        missing |= absent
        try:
            for key, worker in workers.items():
                try:
                    worker.load(
                        Path(scratch) / "batch.npz", weights=workload.weights(), inputs=batch, expected=expected
                    )
                    timers[key] = worker
                except RuntimeError as error:
                    missing[key] = str(error)
            return Line(model=name, rows=n_rows, times_s=timed_in_rounds(timers, budget_s=budget_s), missing=missing)
        finally:
            for worker in workers.values():
                worker.close()


def _row(value: np.ndarray, row: int) -> Any:
    return value[row] if value.dtype == object else np.array(value[row], order="C")


def _check(name: str, answers: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    for output, wanted in expected.items():
        np.testing.assert_allclose(answers[output], wanted, rtol=1e-4, atol=1e-5, err_msg=f"{output} of {name} differs")


def main() -> int:
    """Measure, print the table, write the report."""
    from benchmarks.workloads import WORKLOADS

    parser = argparse.ArgumentParser(description="Forward models: ours against loops, stock pfor, by hand, JAX, DyNet.")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="where graphs run (default: cpu)")
    parser.add_argument("--models", default=",".join(WORKLOADS), help="default: %(default)s")
    parser.add_argument("--rows", default=",".join(map(str, BATCH_SIZES)), help="batch sizes (default: %(default)s)")
    parser.add_argument(
        "--only", default="", help="contenders, such as 'ours,ours xla,by hand,by hand xla' (default: all)"
    )
    parser.add_argument("--budget-s", type=float, default=BUDGET_S, help="seconds for each line (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"), help="default: %(default)s")
    options = parser.parse_args()

    keep_pools_apart()
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # Before TensorFlow looks.
    import tensorflow as tf

    if options.device == "gpu" and not tf.config.list_physical_devices("GPU"):
        print("TensorFlow lists no GPU on this machine, so nothing was measured.")
        print("It needs a driver and the CUDA libraries: pip install 'rowwise[gpu]'. The same on the CPU: make bench")
        return 0
    machine = describe_machine()
    print(f"{machine}\nTime of a batch as a multiple of ours; microseconds for ours.\n")
    lines = []
    sizes = tuple(map(int, options.rows.split(",")))
    for name in options.models.split(","):
        for n_rows in sizes:
            start_s = time.perf_counter()
            only = tuple(filter(None, options.only.split(",")))
            line = measure_line(name, n_rows, sizes=sizes, budget_s=options.budget_s, only=only)
            lines.append(line)
            print(f"{line.text()}   ({time.perf_counter() - start_s:.0f} s)", flush=True)
            # After each line, so that a run that is broken off leaves what it has.
            write_report(lines, title="forward", machine=machine, directory=options.output, verdicts=forward_verdicts)
    print("\n" + (options.output / "forward.md").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Measuring every bucket in every execution mode, on the machine that will serve it.

No mode wins everywhere: XLA runs a 64-step LSTM of one row eight times as fast as the graph, and a small MLP more
slowly; the single-threaded executor saves 50 us a call, the default one can use more cores. So all are timed,
interleaved round by round, so that a slow moment of the machine hits all of them, and the median counts.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from server.artifact import ExecutionMode
from server.build.errors import BuildFailed
from server.build.forms import Form
from server.engine._session import GraphCallable, GraphSession
from vectorizer import Bucket

__all__ = ["Candidate", "Measurement", "measure", "pick"]

#: Time for all rounds of all candidates together, seconds.
_BUDGET_S = 4.0
_MIN_ROUNDS = 5
_MAX_ROUNDS = 41
#: One timing covers as many calls as take this long, so that the clock's own cost does not matter.
_TIMING_S = 200e-6
#: And at least so many, after one that is not timed: the first call after another graph's finds cold caches, which
#: cost a small graph more than its work.
_MIN_CALLS = 3
#: More cores for one batch must pay: they are taken from other batches and from HTTP.
_PARALLEL_GAIN = 1.5
#: Below this a second core can't pay for its wake-up.
_PARALLEL_FROM_S = 1e-3
#: Whether partitioning pays depends on the rows that meet in a batch, of which the builder knows only its probes.
_PARTITIONED_GAIN = 1.05
#: A second session holds a second copy of the variables, so that its mode must be this much faster.
_SECOND_SESSION_GAIN = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way of running one bucket."""

    bucket: Bucket
    mode: ExecutionMode

    @property
    def signature(self) -> str:
        """Its form's key in the SavedModel."""
        return Form.of(self.bucket, self.mode).signature


@dataclass(slots=True, kw_only=True)
class Measurement:
    """What a candidate costs. ``error`` says why it can't be used; then there are no times."""

    candidate: Candidate
    times_s: list[float] = field(default_factory=list)
    warm_s: float = 0.0
    error: str | None = None

    @property
    def cost_s(self) -> float:
        """Median time of one call, seconds."""
        return statistics.median(self.times_s)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        known = self.error is None
        return {
            "rows": self.candidate.bucket.rows,
            "lengths": list(self.candidate.bucket.lengths),
            "compiler": self.candidate.mode.compiler,
            "executor": self.candidate.mode.executor,
            "intra_op_threads": self.candidate.mode.intra_op_threads,
            "control_flow": self.candidate.mode.control_flow,
            "cost_s": self.cost_s if known else None,
            "fastest_s": min(self.times_s) if known else None,
            "rounds": len(self.times_s),
            "warm_s": self.warm_s if known else None,
            "error": self.error,
        }


def modes(n_cpus: int) -> tuple[ExecutionMode, ...]:
    """Return the modes to try on a machine with ``n_cpus`` cores."""
    one_core = (
        ExecutionMode(compiler="graph", executor="single_threaded", intra_op_threads=1),
        ExecutionMode(compiler="xla", executor="single_threaded", intra_op_threads=1),
    )
    # XLA stays with the single-threaded executor: the default one lowers loops to ops that XLA does not compile. A
    # graph of one core does too: the default executor only adds 50 us.
    return one_core if n_cpus == 1 else (*one_core, _all_cores(n_cpus))


def _all_cores(n_cpus: int) -> ExecutionMode:
    return ExecutionMode(compiler="graph", executor="default", intra_op_threads=n_cpus)


def measure(
    saved_model: Path,
    forms: Sequence[Form],
    *,
    feeds: Callable[[Bucket], Mapping[str, np.ndarray]],
    outputs: Sequence[str],
    progress: Callable[[int, int], None],
    clock: Callable[[], float] = time.perf_counter,
) -> list[Measurement]:
    """Time every form in every mode.

    ``forms`` are in ``saved_model``; ``feeds`` gives a bucket's inputs.
    A mode that fails on a bucket is recorded with its error and is not an error of the build.
    """
    n_cpus = len(os.sched_getaffinity(0))
    results: list[Measurement] = []
    with ExitStack() as stack:
        sessions: dict[tuple[str, int], GraphSession] = {}
        runs: list[tuple[Measurement, GraphCallable, list[np.ndarray]]] = []
        plain_cost: dict[Bucket, float] = {}
        wanted = [
            Candidate(bucket=form.bucket, mode=replace(mode, control_flow=form.control_flow))
            for mode in modes(n_cpus)
            for form in forms
            if form.compiler == mode.compiler
        ]
        for done, candidate in enumerate(wanted):
            progress(done, len(wanted) + _MAX_ROUNDS)
            mode, bucket = candidate.mode, candidate.bucket
            if mode.intra_op_threads > 1 and plain_cost.get(bucket, 0.0) < _PARALLEL_FROM_S:
                continue
            key = (mode.executor, mode.intra_op_threads)
            measurement = Measurement(candidate=candidate)
            results.append(measurement)
            try:
                if key not in sessions:
                    sessions[key] = GraphSession(saved_model, executor=key[0], intra_op_threads=key[1])
                    stack.callback(sessions[key].close)
                inputs = feeds(bucket)
                call = sessions[key].callable(candidate.signature, inputs=list(inputs), outputs=outputs)
                arrays = list(inputs.values())
                started = clock()
                call(*arrays)
                measurement.warm_s = clock() - started
                started = clock()
                call(*arrays)
                plain_cost.setdefault(bucket, clock() - started)
                runs.append((measurement, call, arrays))
            except Exception as error:  # noqa: BLE001 - a mode that can't run is a result, not a failure
                measurement.error = f"{type(error).__name__}: {error}"[:500]
        _rounds(runs, clock, lambda done: progress(len(wanted) + done, len(wanted) + _MAX_ROUNDS))
    progress(len(wanted) + _MAX_ROUNDS, len(wanted) + _MAX_ROUNDS)
    return results


def _rounds(
    runs: Sequence[tuple[Measurement, GraphCallable, list[np.ndarray]]],
    clock: Callable[[], float],
    progress: Callable[[int], None],
) -> None:
    repeats = []
    for _, call, arrays in runs:
        call(*arrays)
        started = clock()
        for _ in range(_MIN_CALLS):
            call(*arrays)
        repeats.append(max(_MIN_CALLS, int(_TIMING_S * _MIN_CALLS / max(clock() - started, 1e-9))))
    started = clock()
    for round_ in range(_MAX_ROUNDS):
        if round_ >= _MIN_ROUNDS and clock() - started > _BUDGET_S:
            break
        progress(round_)
        for (measurement, call, arrays), repeat in zip(runs, repeats, strict=True):
            call(*arrays)
            begun = clock()
            for _ in range(repeat):
                call(*arrays)
            measurement.times_s.append((clock() - begun) / repeat)


def pick(measurements: Sequence[Measurement]) -> dict[Bucket, Measurement]:
    """Choose the mode of each bucket: the fastest, unless its gain does not pay for what it takes.

    More threads must gain 1.5 times, modes that need another session than most buckets 1.1 times, and partitioned
    loops 1.05 times.
    Errors: BuildFailed naming a bucket that runs in no mode, with each mode's error.
    """
    by_bucket: dict[Bucket, list[Measurement]] = {}
    for entry in measurements:
        by_bucket.setdefault(entry.candidate.bucket, []).append(entry)
    best: dict[Bucket, Measurement] = {}
    for bucket, entries in by_bucket.items():
        usable = [entry for entry in entries if entry.error is None]
        if not usable:
            reasons = "; ".join(f"{entry.candidate.mode}: {entry.error}" for entry in entries)
            raise BuildFailed("NoExecutionMode", f"{bucket} runs in no execution mode: {reasons}")
        best[bucket] = min(usable, key=_weighted)
    sessions = [_session(entry) for entry in best.values()]
    common = max(dict.fromkeys(sessions), key=sessions.count)
    for bucket, chosen in best.items():
        same = [e for e in by_bucket[bucket] if e.error is None and _session(e) == common]
        if same and _session(chosen) != common:
            alternative = min(same, key=_weighted)
            if _weighted(alternative) < _weighted(chosen) * _SECOND_SESSION_GAIN:
                best[bucket] = alternative
    return best


def _weighted(entry: Measurement) -> float:
    mode = entry.candidate.mode
    return (
        entry.cost_s
        * (_PARALLEL_GAIN if mode.intra_op_threads > 1 else 1.0)
        * (1.0 if mode.control_flow == "masked" else _PARTITIONED_GAIN)
    )


def _session(entry: Measurement) -> tuple[str, int]:
    return (entry.candidate.mode.executor, entry.candidate.mode.intra_op_threads)

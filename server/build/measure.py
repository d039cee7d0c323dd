"""Measuring every bucket in every execution mode, on the machine that will serve it.

No mode wins everywhere: XLA runs a 64-step LSTM of one row eight times as fast as the graph, and a small MLP more
slowly; the single-threaded executor saves 50 us a call, the default one can use more cores. So all are timed,
interleaved round by round, so that a slow moment of the machine hits all of them, and the median counts.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from server.artifact import PREDICT, ExecutionMode
from server.build.errors import BuildFailed
from server.build.forms import Form
from server.engine._session import GraphCallable, GraphSession
from vectorizer import Bucket

__all__ = ["Candidate", "Measurement", "measure", "pick"]

#: Time for all rounds of all candidates together, seconds.
_BUDGET_S = 4.0
_MIN_ROUNDS = 5
#: Of rounds that take more than the budget each: what disturbs a call of seconds is short beside it.
_MIN_LONG_ROUNDS = 3
_MAX_ROUNDS = 41
#: One timing covers as many calls as take this long, so that the clock's own cost does not matter.
_TIMING_S = 200e-6
#: And at least so many, after one that is not timed: the first call after another graph's finds cold caches, which
#: cost a small graph more than its work.
_MIN_CALLS = 3
#: A call of this length is timed alone: it fills the caches itself, and three of them for each timing take their time.
_LONG_S = 5e-3
#: Who takes so many times as long as another is out of the race. Above what a core saves that it has for itself.
_HOPELESS = 1.7
_ROUNDS_FOR_ALL = 2
#: XLA is compiled for the smallest and the largest bucket before it is for others.
_N_ENDS = 2
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
    entry: str = PREDICT

    @property
    def form(self) -> Form:
        """What is executed."""
        return Form.of(self.bucket, self.mode, entry=self.entry)


@dataclass(slots=True, kw_only=True)
class Measurement:
    """What a candidate costs. ``error`` says why it can't be used; then there are no times."""

    candidate: Candidate
    times_s: list[float] = field(default_factory=list)
    warm_s: float = 0.0
    error: str | None = None

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return self.candidate.bucket.rows

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
    forms: Mapping[Form, Path],
    *,
    feeds: Callable[[Bucket], Mapping[str, np.ndarray]],
    outputs: Sequence[str],
    progress: Callable[[int, int], None],
    clock: Callable[[], float] = time.perf_counter,
) -> list[Measurement]:
    """Time every form in every mode.

    ``forms`` maps each to the SavedModel that it is in; ``feeds`` gives a bucket's inputs.
    A mode that fails on a bucket is recorded with its error and is not an error of the build.
    """
    n_cpus = len(os.sched_getaffinity(0))
    results: list[Measurement] = []
    with ExitStack() as stack:
        sessions: dict[tuple[Path, str, int], GraphSession] = {}
        runs: list[_Run] = []
        #: By bucket, one call in the first mode that works: the graph on one core.
        plain_s: dict[Bucket, float] = {}
        wanted = _ends_first(
            Candidate(bucket=form.bucket, mode=replace(mode, control_flow=form.control_flow), entry=form.entry)
            for mode in modes(n_cpus)
            for form in forms
            if form.compiler == mode.compiler
        )
        ends: list[float] = []
        for done, candidate in enumerate(wanted):
            progress(done, len(wanted) + _MAX_ROUNDS)
            mode, bucket = candidate.mode, candidate.bucket
            if mode.intra_op_threads > 1 and plain_s.get(bucket, 0.0) < _PARALLEL_FROM_S:
                continue
            key = (forms[candidate.form], mode.executor, mode.intra_op_threads)
            measurement = Measurement(candidate=candidate)
            results.append(measurement)
            if mode.compiler == "xla" and len(ends) >= _N_ENDS and min(ends) > _HOPELESS:
                measurement.error = (
                    f"not tried: at both ends XLA took at least {min(ends):.1f} times as long as the graph"
                )
                continue
            try:
                if key not in sessions:
                    sessions[key] = GraphSession(key[0], executor=key[1], intra_op_threads=key[2])
                    stack.callback(sessions[key].close)
                inputs = feeds(bucket)
                call = sessions[key].callable(candidate.form.signature, inputs=list(inputs), outputs=outputs)
                run = _Run(measurement, call, list(inputs.values()), clock)
                measurement.warm_s = run.timed(1)
                run.quick_s = run.quickest()
                plain_s.setdefault(bucket, run.quick_s)
                runs.append(run)
                if mode.compiler == "xla" and len(ends) < _N_ENDS:
                    ends.append(run.quick_s / plain_s[bucket])
            except Exception as error:  # noqa: BLE001 - a mode that can't run is a result, not a failure
                measurement.error = f"{type(error).__name__}: {error}"[:500]
        _rounds(runs, clock, lambda done: progress(len(wanted) + done, len(wanted) + _MAX_ROUNDS))
    progress(len(wanted) + _MAX_ROUNDS, len(wanted) + _MAX_ROUNDS)
    return results


def _ends_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Order candidates by compiler, graphs first, and within XLA the smallest and the largest bucket first.

    A compiler that loses at both ends by far is not tried in between: compiling is what a build of a deep network
    spends most of its time with.
    """
    ordered = sorted(candidates, key=lambda candidate: candidate.mode.compiler != "graph")
    xla = [candidate for candidate in ordered if candidate.mode.compiler == "xla"]
    if len(xla) <= _N_ENDS:
        return ordered
    ends = [min(xla, key=lambda entry: entry.bucket), max(xla, key=lambda entry: entry.bucket)]
    return [
        *(candidate for candidate in ordered if candidate.mode.compiler == "graph"),
        *ends,
        *(candidate for candidate in xla if candidate not in ends),
    ]


@dataclass(slots=True)
class _Run:
    """A candidate that works, and what it is timed with."""

    measurement: Measurement
    call: GraphCallable
    arrays: list[np.ndarray]
    clock: Callable[[], float]
    quick_s: float = 0.0
    repeat: int = 1

    def quickest(self) -> float:
        """Return about how long a call takes, seconds."""
        first_s = self.timed(1)
        return first_s if first_s >= _LONG_S else min(first_s, *(self.timed(1) for _ in range(_MIN_CALLS)))

    def timed(self, n_calls: int) -> float:
        """Return the seconds of one call, averaged over ``n_calls``."""
        started = self.clock()
        for _ in range(n_calls):
            self.call(*self.arrays)
        return (self.clock() - started) / n_calls


def _rounds(runs: Sequence[_Run], clock: Callable[[], float], progress: Callable[[int], None]) -> None:
    for run in runs:
        if run.quick_s < _LONG_S:
            run.call(*run.arrays)
            run.repeat = max(_MIN_CALLS, int(_TIMING_S / max(run.timed(_MIN_CALLS), 1e-9)))
    started = clock()
    n_rounds = _MIN_ROUNDS
    for round_ in range(_MAX_ROUNDS):
        spent_s = clock() - started
        if round_ == 1 and spent_s > _BUDGET_S:
            n_rounds = _MIN_LONG_ROUNDS
        if round_ >= n_rounds and spent_s > _BUDGET_S:
            break
        progress(round_)
        for run in runs if round_ < _ROUNDS_FOR_ALL else _in_the_running(runs):
            if run.quick_s < _LONG_S:
                run.call(*run.arrays)
            run.measurement.times_s.append(run.timed(run.repeat))


def _in_the_running(runs: Sequence[_Run]) -> list[_Run]:
    """Leave out long calls that were never near the best of their bucket: their rounds are the costly ones."""
    best: dict[Bucket, float] = {}
    for run in runs:
        bucket = run.measurement.candidate.bucket
        best[bucket] = min(best.get(bucket, math.inf), *run.measurement.times_s)
    return [
        run
        for run in runs
        if min(run.measurement.times_s) < max(_LONG_S, _HOPELESS * best[run.measurement.candidate.bucket])
    ]


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

"""What a comparison found: every run, and the medians that its table and picture show."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from loadtests.driver import Measurement

__all__ = ["BATCHED", "CONTENDERS", "LIMITED", "LOOPED", "Comparison", "Median", "Run"]

BATCHED = "Rowwise"
LIMITED = "Rowwise, bucket 1 only"
LOOPED = "FastAPI loop"
#: In the order of tables and pictures.
CONTENDERS = (BATCHED, LIMITED, LOOPED)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measurement. ``server_us`` is the processor time that the server took for each request, microseconds."""

    model: str
    contender: str
    callers: int
    repeat: int
    server_us: float
    measured: Measurement


@dataclass(frozen=True, kw_only=True)
class Median:
    """The medians over a cell's repeats, with the lowest and highest throughput among them."""

    requests_per_s: float
    lowest: float
    highest: float
    p50_us: float
    p99_us: float
    server_us: float
    busy: float


@dataclass(kw_only=True)
class Comparison:
    """All runs of one comparison, with what is needed to judge them.

    ``others`` is how many cores were in use before it started, by processes that have nothing to do with it.
    ``capacity`` is the driver against the trivial responder, by callers: the most it can send, and at one caller
    the bare HTTP round trip. ``wrk`` holds (contender, callers, wrk's requests/s) for ``models[0]``.
    """

    machine: dict[str, str]
    models: tuple[str, ...]
    callers: tuple[int, ...]
    repeats: int
    pinned: bool
    others: float = 0.0
    capacity: dict[int, Measurement] = field(default_factory=dict)
    wrk: list[tuple[str, int, float]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def median(self, model: str, contender: str, callers: int) -> Median:
        """Return the medians of one cell. Errors: KeyError if nothing was measured there."""
        runs = [run for run in self.runs if (run.model, run.contender, run.callers) == (model, contender, callers)]
        if not runs:
            raise KeyError((model, contender, callers))
        rates = [run.measured.requests_per_s for run in runs]
        return Median(
            requests_per_s=statistics.median(rates),
            lowest=min(rates),
            highest=max(rates),
            p50_us=statistics.median(run.measured.p50_us for run in runs),
            p99_us=statistics.median(run.measured.p99_us for run in runs),
            server_us=statistics.median(run.server_us for run in runs),
            busy=statistics.median(run.measured.busy for run in runs),
        )

    def failures(self) -> Iterator[tuple[Run, str]]:
        """Yield every run that had a wrong or missing answer, with what was wrong."""
        for run in self.runs:
            if run.measured.failures:
                kinds = ", ".join(f"{count} x {kind}" for kind, count in run.measured.failures.items())
                yield run, f"{kinds}; the first: {run.measured.first_failure}"

    def n_checked(self) -> int:
        """Return how many answers were counted and checked."""
        return sum(run.measured.n_answers for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, every run included."""
        return asdict(self)

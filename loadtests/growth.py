"""Does it grow? Samples of a long run, the slope after the warm-up, and a picture of both.

A slope is Theil and Sen's, the median of the slopes between all pairs of samples: a peak that passes does not move it
(Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968). Growth is the slope times the time.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

__all__ = ["Finding", "Sample", "draw", "findings", "slope"]

#: Share of the run that is warm-up: allocators fill their arenas, models are loaded for the first time.
_WARM_UP = 1 / 3
#: More pairs than these say nothing new.
_MOST_SAMPLES = 150
#: What a register-and-delete cycle may leave, MB, and what memory may grow by beside, MB: it is never quite flat.
_CYCLE_MB = 1.0
_SLACK_MB = 24.0
#: Connections and files that come and go with the callers.
_SLACK_FDS = 8.0
_SLACK_THREADS = 4.0
#: Rows: a queue that only grows.
_SLACK_ROWS = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was seen ``at_s`` seconds after the load began."""

    at_s: float
    rss_mb: float
    n_fds: float
    n_threads: float
    n_waiting: float
    #: Executables compiled for requests, and time spent on tracing.
    n_compiled: float
    traced_s: float
    n_cycles: int
    n_answers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """How one quantity went on after the warm-up."""

    what: str
    first: float
    last: float
    growth: float
    allowed: float

    @property
    def is_fit(self) -> bool:
        """True: it has grown by no more than it may."""
        return self.growth <= self.allowed

    @property
    def sentence(self) -> str:
        """Say it."""
        return f"{self.what} grew by {self.growth:.1f} after the warm-up, {self.allowed:.1f} are allowed"


def slope(at_s: Sequence[float], values: Sequence[float]) -> float:
    """Return the median slope between two of the points, in units a second; 0 of fewer than two points."""
    pairs = combinations(zip(at_s, values, strict=True), 2)
    slopes = [
        (late - early) / (after_s - before_s) for (before_s, early), (after_s, late) in pairs if after_s > before_s
    ]
    return statistics.median(slopes) if slopes else 0.0


def findings(samples: Sequence[Sample]) -> list[Finding]:
    """Return how each quantity went on after the warm-up."""
    warm = [sample for sample in samples if sample.at_s >= _WARM_UP * samples[-1].at_s]
    warm = warm[:: 1 + len(warm) // _MOST_SAMPLES]
    at_s = [sample.at_s for sample in warm]
    n_cycles = warm[-1].n_cycles - warm[0].n_cycles
    allowed = {
        "resident memory, MB": (_SLACK_MB + _CYCLE_MB * n_cycles, [sample.rss_mb for sample in warm]),
        "open files": (_SLACK_FDS, [sample.n_fds for sample in warm]),
        "threads": (_SLACK_THREADS, [sample.n_threads for sample in warm]),
        "waiting rows": (_SLACK_ROWS, [sample.n_waiting for sample in warm]),
    }
    found = []
    for what, (most, values) in allowed.items():
        fifth = max(1, len(values) // 5)
        found.append(
            Finding(
                what=what,
                first=statistics.median(values[:fifth]),
                last=statistics.median(values[-fifth:]),
                growth=slope(at_s, values) * (at_s[-1] - at_s[0]),
                allowed=most,
            )
        )
    return [*found, *_counted(warm)]


def _counted(warm: Sequence[Sample]) -> list[Finding]:
    """Return what must not happen at all: these only ever go up, and a median would not see one that did."""
    counts = {
        "compiled for requests": [sample.n_compiled for sample in warm],
        "traced, s": [sample.traced_s for sample in warm],
    }
    return [
        Finding(what=what, first=values[0], last=values[-1], growth=values[-1] - values[0], allowed=0.0)
        for what, values in counts.items()
    ]


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Draw every quantity over time, the warm-up shaded."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows: list[tuple[str, list[float]]] = [
        ("resident memory, MB", [sample.rss_mb for sample in samples]),
        ("open files", [sample.n_fds for sample in samples]),
        ("threads", [sample.n_threads for sample in samples]),
        ("waiting rows", [sample.n_waiting for sample in samples]),
        ("compiled for requests", [sample.n_compiled for sample in samples]),
        ("traced, s", [sample.traced_s for sample in samples]),
        ("answers checked", [float(sample.n_answers) for sample in samples]),
        ("cycles of register and delete", [float(sample.n_cycles) for sample in samples]),
    ]
    minutes = [sample.at_s / 60 for sample in samples]
    figure, axes = pyplot.subplots(4, 2, figsize=(11, 10), sharex=True, layout="constrained")
    drawn: Any = axes.flat
    for axis, (name, values) in zip(drawn, rows, strict=True):
        axis.axvspan(0, _WARM_UP * minutes[-1], color="#eeeeee")
        axis.plot(minutes, values, color="#0b6e4f", linewidth=1.2)
        axis.set_title(name, fontsize=10, loc="left")
        axis.set_ylim(0, 1.1 * max(values, default=0.0) or 1.0)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("minutes under load")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)

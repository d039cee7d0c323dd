"""Two servers under the same load, in turn, so that whatever else the machine does falls on both."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtests.runs.choice import Engine
from loadtests.runs.crew import Crew
from loadtests.runs.figures import Figures, figures
from loadtests.runs.load import Load
from loadtests.runs.observations import Observations

__all__ = ["Contender", "Versus", "face"]

#: What is compared, as attributes of figures.
COMPARED = ("requests_per_s", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "failed_share")


@dataclass(kw_only=True)
class Contender:
    """One server: its name for people, its URL, who loads it, and the figures of its runs."""

    name: str
    url: str
    crew: Crew
    runs: list[Figures] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    def median(self, what: str) -> float:
        """Return the median of one figure over the runs; 0 of none."""
        return statistics.median(getattr(run, what) for run in self.runs) if self.runs else 0.0


@dataclass(kw_only=True)
class Versus:
    """What was seen. ``seen`` is the first server's run of median throughput."""

    contenders: tuple[Contender, Contender]
    seen: Observations | None = None

    def ratios(self, what: str) -> list[float]:
        """Return the first server's figure over the second's, for each pair of runs where that is a number."""
        pairs = zip(self.contenders[0].runs, self.contenders[1].runs, strict=False)
        return [getattr(a, what) / getattr(b, what) for a, b in pairs if getattr(b, what)]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "contenders": [
                {
                    "name": each.name,
                    "url": each.url,
                    "busy": max(each.busy, default=0.0),
                    "runs": [run.to_json() for run in each.runs],
                    "median": {what: each.median(what) for what in COMPARED},
                }
                for each in self.contenders
            ],
            "ratios": {
                what: {"median": statistics.median(ratios), "pairs": ratios}
                for what in COMPARED
                if (ratios := self.ratios(what))
            },
        }


def face(
    contenders: tuple[Contender, Contender],
    load: Load,
    *,
    repeats: int,
    engine: Engine,
    on_step: Callable[[str], None] = lambda what: None,
) -> Versus:
    """Run the load on both, ``repeats`` times, each taking turns to be first."""
    kept: list[Observations] = []
    for repeat in range(repeats):
        for contender in _in_turn(contenders, repeat):
            on_step(f"run {repeat + 1} of {repeats}: {contender.name}")
            seen = contender.crew.run(load, engine=engine)
            if contender.crew.was_interrupted and contender.runs:
                return _versus(contenders, kept)
            contender.runs.append(figures(seen))
            contender.busy.append(seen.busy)
            if contender is contenders[0]:
                kept.append(seen)
            if contender.crew.was_interrupted:
                return _versus(contenders, kept)
    return _versus(contenders, kept)


def _in_turn(contenders: tuple[Contender, Contender], repeat: int) -> Sequence[Contender]:
    return contenders if repeat % 2 == 0 else contenders[::-1]


def _versus(contenders: tuple[Contender, Contender], kept: list[Observations]) -> Versus:
    rates = [run.requests_per_s for run in contenders[0].runs[: len(kept)]]
    middle = sorted(range(len(rates)), key=rates.__getitem__)[(len(rates) - 1) // 2] if rates else None
    return Versus(contenders=contenders, seen=None if middle is None else kept[middle])

"""Carries a search for the capacity out, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from loadtests.runs.crew import Crew
from loadtests.runs.figures import Figures, figures
from loadtests.runs.load import Load
from loadtests.runs.observations import Observations
from loadtests.runs.search import Capacity, Search
from loadtests.runs.verdict import Targets, is_generator_limit

__all__ = ["Ramp", "Step", "climb"]

#: A step takes longer, up to so many times, for so many answers: of fewer a p99 is the slowest but one.
_ANSWERS, _LONGEST = 300, 4.0
#: A step is at least so many times as long as the p99 that is wanted.
_TARGETS = 5.0
#: Answers below this share of what was due are no moment's trouble.
_CLEARLY_LESS = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rate that was tried. ``miss`` is None if it held."""

    rate: float
    miss: str | None
    busy: float
    figures: Figures


@dataclass(kw_only=True)
class Ramp:
    """What a ramp found. ``seen`` is the last step that held at the capacity, or else the last step."""

    capacity: Capacity
    steps: list[Step] = field(default_factory=list)
    seen: Observations | None = None
    load: Load | None = None


def climb(
    crew: Crew, load: Load, targets: Targets, search: Search, *, on_step: Callable[[str], None] = lambda what: None
) -> Ramp:
    """Try rates until the search is over, or somebody interrupts it. ``load`` says all but the rate."""
    steps: list[Step] = []
    # What is answered just within the target has to be answered within the step, most of it.
    target_s = (targets.p99_ms or 0.0) / 1e3
    shortest_s = max(load.duration_s, _TARGETS * target_s)
    kept: dict[float, tuple[Observations, Load]] = {}
    last: tuple[Observations, Load] | None = None
    while (rate := search.next_rate) is not None:
        on_step(f"step {len(steps) + 1}: {rate:,.0f} requests/s")
        tried = replace(
            load,
            callers=None,
            rate=rate,
            warmup_s=max(load.warmup_s, 2 * target_s),
            duration_s=max(shortest_s, min(_ANSWERS / rate, _LONGEST * shortest_s)),
            seed=load.seed + len(steps),
        )
        seen = crew.run(tried)
        if crew.was_interrupted:
            search.stop("interrupted")
            last = last or (seen, tried)
            break
        found = figures(seen)
        miss = targets.miss(found)
        steps.append(Step(rate=rate, miss=miss, busy=seen.busy, figures=found))
        last = (seen, tried)
        if miss is None:
            kept[rate] = last
        is_clear = found.requests_per_s < _CLEARLY_LESS * found.offered_per_s
        search.tell(holds=miss is None, is_clear=is_clear, is_generator_limit=is_generator_limit(seen))
    shown = kept.get(search.capacity.rate or 0.0, last)
    return Ramp(
        capacity=search.capacity,
        steps=steps,
        seen=shown[0] if shown else None,
        load=shown[1] if shown else None,
    )

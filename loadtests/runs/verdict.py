"""Which targets were missed, and what a reader has to know before believing the figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadtests.runs.choice import BUSY
from loadtests.runs.figures import Figures
from loadtests.runs.load import Load
from loadtests.runs.observations import Observations

__all__ = ["KEEPS_UP", "Target", "Targets", "is_generator_limit", "remarks"]

#: Of so few answers a p99 is decided by ten.
_FEW = 1_000
#: In an open loop, answers below this share of what was due mean that the server did not keep up.
KEEPS_UP = 0.95
#: A share of requests that waited for a connection from which on it is worth a word.
_WAITED = 0.01
#: Cores that others may use without a word about it.
_OTHERS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One target: what was wanted, at most (or, for answers, at least), and what was got."""

    name: str
    wanted: float
    got: float
    is_met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What is wanted: a p99 in milliseconds, if any, and the largest share of requests that may fail."""

    p99_ms: float | None = None
    max_errors: float = 0.0

    def judge(self, figures: Figures) -> list[Target]:
        """Return every target with whether it was met. A run without a right answer has met none."""
        judged = [
            Target(name="right answers", wanted=1, got=figures.n_right, is_met=figures.n_right > 0),
            Target(
                name="share of failures",
                wanted=self.max_errors,
                got=figures.failed_share,
                is_met=figures.failed_share <= self.max_errors,
            ),
        ]
        if self.p99_ms is not None:
            is_met = figures.n_latencies > 0 and figures.p99_ms <= self.p99_ms
            judged.append(Target(name="p99, ms", wanted=self.p99_ms, got=figures.p99_ms, is_met=is_met))
        return judged

    def miss(self, figures: Figures) -> str | None:
        """Return why a step of a ramp did not hold; None: it held."""
        for target in self.judge(figures):
            if not target.is_met:
                return f"{target.name}: {target.got:.4g}, wanted {target.wanted:.4g}"
        if figures.requests_per_s < KEEPS_UP * figures.offered_per_s:
            return f"{figures.requests_per_s:,.0f} of {figures.offered_per_s:,.0f} requests/s were answered in time"
        return None


def is_generator_limit(seen: Observations) -> bool:
    """Return whether the generator, not the server, may have been what limited a run."""
    return seen.busy > BUSY


def remarks(
    load: Load, seen: Observations, figures: Figures, *, is_checked: bool, others: float = 0.0
) -> Iterator[str]:
    """Yield what a reader has to know. ``others``: cores that were in use before the start."""
    if seen.is_interrupted:
        yield f"Interrupted: these are the first {seen.elapsed_s:.1f} s."
    if is_generator_limit(seen):
        yield (
            f"The load generator was at work for {seen.busy:.0%} of its core, and may have been the limit: the server "
            "can do at least this. Give it more processes (--processes), or a machine of its own."
        )
    if load.is_open and figures.requests_per_s < KEEPS_UP * figures.offered_per_s:
        yield (
            f"{figures.offered_per_s:,.0f} requests/s were due and {figures.requests_per_s:,.0f} were answered: "
            "latency grew for as long as this went on, so that its figures tell the duration more than the server."
        )
    if seen.n_waited > _WAITED * max(1, figures.n_requests):
        yield (
            f"{seen.n_waited:,} requests found all {load.connections} connections taken, and waited for one, which "
            "their latency includes. If your callers have more, say so by --connections."
        )
    if 0 < figures.n_latencies < _FEW:
        yield f"The quantiles are of {figures.n_latencies:,} answers: run longer before trusting p99 or p99.9."
    if len(seen.done_s) >= load.max_requests:
        yield f"Ended by --max-requests ({load.max_requests:,}), before the time was over."
    if not is_checked:
        yield "Answers were not checked: any of status 200 counts as right (--check compares them)."
    if others > _OTHERS:
        yield f"Other processes kept {others:.1f} cores of this machine busy before the start."

"""A search carried out on a server that is a formula: how long it takes follows from the rate."""

from __future__ import annotations

from typing import Any

import pytest

from loadtests.runs.load import Load
from loadtests.runs.observations import Observations, Observer
from loadtests.runs.ramp import climb
from loadtests.runs.search import Search
from loadtests.runs.verdict import Targets


class FormulaCrew:
    """Answers ``capacity`` requests a second at most; the queue of an open loop above that grows without end."""

    def __init__(self, capacity: float, *, busy: float = 0.1, interrupted_after: int | None = None) -> None:
        self._capacity = capacity
        self._busy = busy
        self._interrupted_after = interrupted_after
        self.loads: list[Load] = []
        self.was_interrupted = False

    def run(self, load: Load) -> Observations:
        self.loads.append(load)
        self.was_interrupted = len(self.loads) == self._interrupted_after
        assert load.rate is not None
        end_s = load.warmup_s + load.duration_s
        observer, free_s = Observer(["m"]), 0.0
        for number in range(int(load.rate * end_s)):
            due_s = number / load.rate
            free_s = max(due_s, free_s) + 1 / self._capacity
            observer.add(0, due_s, due_s, free_s)
        return observer.finish(
            warmup_s=load.warmup_s, elapsed_s=end_s, busy=self._busy, is_interrupted=self.was_interrupted
        )


def climbed(crew: Any, *, p99_ms: float = 100.0, **options: Any) -> Any:
    search = Search(**{"first_rate": 30.0, "highest_rate": 1e6, **options})
    return climb(crew, Load(rate=1.0, duration_s=2.0, warmup_s=0.5, connections=7), Targets(p99_ms=p99_ms), search)


@pytest.mark.parametrize("capacity", [90.0, 700.0])
def test_the_capacity_of_a_queue_is_found(capacity: float) -> None:
    crew = FormulaCrew(capacity)
    found = climbed(crew)
    # Just above its capacity the queue grows so slowly that a step ends before the target is missed.
    assert 0.93 * capacity <= found.capacity.rate <= 1.1 * capacity
    assert found.capacity.is_confirmed
    assert [step.rate for step in found.steps] == [load.rate for load in crew.loads]
    missed = [step for step in found.steps if step.miss is not None]
    assert all("p99" in step.miss or "answered in time" in step.miss for step in missed)
    assert found.load is not None
    assert found.load.rate == found.capacity.rate, "what is shown is a step at the capacity"


def test_steps_are_long_enough_for_their_target_and_for_a_p99() -> None:
    slow, rare = FormulaCrew(500.0), FormulaCrew(1e6)
    climbed(slow, p99_ms=1_000.0, max_steps=1)
    assert slow.loads[0].duration_s >= 5.0
    assert slow.loads[0].warmup_s >= 2.0
    climbed(rare, first_rate=60.0, max_steps=1)
    assert rare.loads[0].rate * rare.loads[0].duration_s == pytest.approx(300)
    assert rare.loads[0].connections == 7, "all else is as it was asked for"


def test_a_server_that_never_holds_has_none_and_shows_the_last_step() -> None:
    found = climbed(FormulaCrew(500.0), p99_ms=0.5)
    assert found.capacity.rate is None
    assert found.load.rate == found.steps[-1].rate


def test_the_generators_limit_is_no_finding_about_the_server() -> None:
    found = climbed(FormulaCrew(200.0, busy=0.97))
    assert "load generator itself" in found.capacity.reason
    assert not found.capacity.is_confirmed


def test_an_interruption_keeps_what_was_found_until_then() -> None:
    found = climbed(FormulaCrew(500.0, interrupted_after=3))
    assert found.capacity.reason == "interrupted"
    assert found.capacity.rate == 60.0
    assert len(found.steps) == 2

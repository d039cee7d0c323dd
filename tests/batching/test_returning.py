"""Batches wait for callers who were just answered where that pays, and for nobody else."""

from __future__ import annotations

import heapq
import math
from itertools import count, pairwise

import pytest

from server.batching import CostTable, Group, Policy
from server.batching.returning import Returning, saved_s
from tests.batching.doubles import Bench

#: Seconds; as a small model's: a batch of eight costs little more than one of four.
COSTS = {1: 1.0e-3, 2: 1.1e-3, 4: 1.3e-3, 8: 1.6e-3}
#: Between an answer and the next request of its caller.
BACK_S = 0.2e-3
WAITS = Policy(returning_s=5e-3)


class Callers:
    """A closed loop on a clock of its own: each asks again ``back_s`` after its answer, or never."""

    def __init__(self, n: int, *, policy: Policy, back_s: float = BACK_S) -> None:
        self.bench = Bench(costs=COSTS, policy=policy)
        self.back_s = back_s
        self.n_answered = 0
        self._events: list[tuple[float, int, str, int]] = []
        self._number = count()
        for caller in range(n):
            # Not all at once: the first takes a batch alone, the others share the next one.
            self._at(self.bench.clock() + 1e-4 * caller, "asks", caller)

    def _at(self, when_s: float, what: str, caller: int) -> None:
        heapq.heappush(self._events, (when_s, next(self._number), what, caller))

    def run(self, rounds: int) -> list[int]:
        """Run so many batches, and return how many rows each had."""
        bench = self.bench
        while len(bench.ran) < rounds:
            wakeup_s = bench.batcher.next_wakeup_s()
            if wakeup_s is not None and (not self._events or wakeup_s <= self._events[0][0]):
                bench.clock.now_s = max(bench.clock.now_s, wakeup_s)
                bench.batcher.expire()
            else:
                when_s, _, what, caller = heapq.heappop(self._events)
                bench.clock.now_s = when_s
                if what == "asks":
                    bench.group.returning.came(1)
                    bench.batcher.submit(bench.make(caller, tag=caller))
                else:
                    bench.manual.finish()
            bench.ticks.run()
            self._started()
        return [ran.batch.n_rows for ran in bench.ran]

    def _started(self) -> None:
        bench = self.bench
        for ran in bench.manual.running:
            end_s = ran.now_s + ran.batch.predicted_s
            if not any(what == "ends" for _, _, what, _ in self._events):
                self._at(end_s, "ends", 0)
        for item in bench.answered[self.n_answered :]:
            if math.isfinite(self.back_s):
                self._at(bench.clock() + self.back_s, "asks", item.tag)  # type: ignore[arg-type]
        self.n_answered = len(bench.answered)


def test_eight_callers_share_their_batches_instead_of_taking_turns() -> None:
    apart, together = Callers(8, policy=Policy()), Callers(8, policy=WAITS)
    assert set(apart.run(60)[-10:]) != {8}
    assert set(together.run(60)[-10:]) == {8}
    # Everybody is served sooner.
    took_s = [callers.bench.clock() - 100.0 for callers in (apart, together)]
    rates = [callers.n_answered / seconds for callers, seconds in zip((apart, together), took_s, strict=True)]
    assert rates[1] > 1.2 * rates[0]


def test_who_is_alone_never_waits() -> None:
    callers = Callers(1, policy=WAITS)
    callers.run(20)
    starts = [ran.now_s for ran in callers.bench.ran]
    assert [after - before for before, after in pairwise(starts)] == pytest.approx([COSTS[1] + BACK_S] * 19)


def test_callers_who_come_back_late_are_waited_for_ever_more_rarely() -> None:
    late = Callers(8, policy=WAITS, back_s=20e-3)
    late.run(400)
    never = Callers(8, policy=Policy(), back_s=20e-3)
    never.run(400)
    assert late.bench.clock() <= 1.02 * never.bench.clock()


def answered_once(bench: Bench, n: int = 4) -> None:
    """Run a batch of ``n`` callers, who are expected back from then on."""
    for caller in range(n):
        bench.batcher.submit(bench.make(caller, tag=caller))
    bench.ticks.run()
    bench.clock.advance(COSTS[4])
    bench.manual.finish()


def test_a_wait_ends_at_its_time_and_the_batch_runs() -> None:
    bench = Bench(costs=COSTS, policy=WAITS)
    answered_once(bench)
    bench.submit("stays", 4)
    bench.ticks.run()
    assert len(bench.ran) == 1
    wakeup_s = bench.batcher.next_wakeup_s()
    assert wakeup_s is not None
    assert bench.clock() < wakeup_s <= bench.clock() + 5e-3
    bench.clock.now_s = wakeup_s
    bench.batcher.expire()
    assert bench.payloads(1) == ["stays"]
    assert bench.ran[0].batch.held_s == 0.0
    assert bench.ran[1].batch.held_s == pytest.approx(wakeup_s - 100.0 - COSTS[4])
    assert bench.batcher.next_wakeup_s() is None


def test_a_wait_ends_when_all_are_back() -> None:
    bench = Bench(costs=COSTS, policy=WAITS)
    answered_once(bench)
    bench.submit("stays", 4)
    bench.ticks.run()
    for caller in range(4):
        bench.group.returning.came(1)
        bench.batcher.submit(bench.make(caller, tag=caller))
        assert len(bench.ran) == 1
    bench.ticks.run()
    assert bench.payloads(1) == ["stays", 0, 1, 2, 3]


def test_rows_that_wait_when_a_batch_ends_wait_for_its_callers() -> None:
    bench = Bench(costs=COSTS, policy=WAITS)
    for caller in range(4):
        bench.batcher.submit(bench.make(caller, tag=caller))
    bench.ticks.run()
    bench.submit("stays", 4)
    bench.clock.advance(COSTS[4])
    bench.manual.finish()
    assert len(bench.ran) == 1
    assert bench.batcher.next_wakeup_s() is not None


@pytest.mark.parametrize("why", ["policy", "deadline", "other model", "drain", "full", "no tags", "long ago"])
def test_nothing_waits_where_it_does_not_pay(why: str) -> None:
    bench = Bench(costs=COSTS, policy=Policy() if why == "policy" else WAITS)
    if why == "no tags":
        for caller in range(4):
            bench.submit(caller)
        bench.ticks.run()
        bench.clock.advance(COSTS[4])
        bench.manual.finish()
    else:
        answered_once(bench)
    if why == "other model":
        bench.submit("other", group=Group("other", CostTable(COSTS)))
    if why == "long ago":
        bench.clock.advance(1.0)
    bench.submit("first", 8 if why == "full" else 4, timeout_s=2e-3 if why == "deadline" else None)
    if why == "drain":
        bench.batcher.drain()
    bench.ticks.run()
    assert len(bench.ran) == 2


def test_waiting_in_vain_makes_waits_rare_and_one_that_was_worth_it_less_so() -> None:
    returning = Returning()
    now_s = 0.0

    def chances(n: int, *, back: bool) -> int:
        nonlocal now_s
        n_waits = 0
        for _ in range(n):
            now_s += 1e-2
            returning.answered(4, now_s)
            until_s = returning.wait_until_s(now_s, 1e-3)
            if until_s > now_s:
                n_waits += 1
                if back:
                    returning.came(4)
                else:
                    assert returning.wait_until_s(until_s, 1e-3) == -math.inf
            returning.dispatched(now_s)
        return n_waits

    assert chances(1_000, back=False) <= 7 + 1_000 // 64
    assert 1 <= chances(128, back=True) <= 3
    chances(2_000, back=True)
    assert chances(100, back=True) == 100


def test_what_sharing_saves_is_what_the_batches_cost_apart_less_what_they_cost_together() -> None:
    costs = CostTable(COSTS)
    assert saved_s(costs, 4, 4) == pytest.approx(2 * COSTS[4] - COSTS[8])
    assert saved_s(costs, 8, 4) == pytest.approx(0.0)
    assert saved_s(costs, 3, 0) == 0.0


def test_who_is_late_while_others_wait_is_told_so() -> None:
    bench = Bench(costs=COSTS, policy=WAITS)
    for caller in range(4):
        bench.batcher.submit(bench.make(caller, tag=caller))
    bench.ticks.run()
    late = bench.submit("late", 4, timeout_s=8e-3)
    bench.submit("stays", 4)
    bench.clock.advance(8e-3)
    bench.manual.finish()
    assert len(bench.ran) == 1, "the other one waits for the callers of the batch that has run"
    assert bench.answered.count(late) == 1
    assert late.error is not None


def test_a_wait_that_something_else_ended_wakes_nobody() -> None:
    bench = Bench(costs=COSTS, policy=WAITS)
    answered_once(bench)
    item = bench.submit("leaves", 4)
    bench.ticks.run()
    assert bench.batcher.next_wakeup_s() is not None
    bench.batcher.cancel(item)
    bench.clock.advance(1.0)
    bench.batcher.expire()
    assert bench.batcher.next_wakeup_s() is None

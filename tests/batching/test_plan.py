"""The planner, rule by rule. Queues are plain values here: no batcher, no clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from server.batching import CostTable, Dispatch, Idle, Policy, Reason, Share, WaitUntil, plan
from tests.batching.doubles import SMALL_COSTS

NOW_S = 100.0
SMALL = CostTable(SMALL_COSTS)


@dataclass(frozen=True)
class StillQueue:
    """A queue as the planner sees it: ``rows`` are pairs of arrival and deadline."""

    rows: tuple[tuple[float, float], ...]
    costs: CostTable = field(default=SMALL)
    load: float = 0.0
    share: Share = field(default_factory=Share)

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    @property
    def oldest_s(self) -> float:
        return min(arrived_s for arrived_s, _ in self.rows)

    @property
    def due_s(self) -> float:
        return min(due_s for _, due_s in self.rows)

    def rows_due_before(self, limit_s: float) -> int:
        return sum(due_s < limit_s for _, due_s in self.rows)


def waiting(n_rows: int, *, arrived_s: float = 99.0, due_s: float = math.inf, costs: CostTable = SMALL) -> StillQueue:
    return StillQueue(((arrived_s, due_s),) * n_rows, costs)


def used(seconds: float) -> Share:
    share = Share()
    share.used_s = seconds
    return share


def decide(*queues: StillQueue, free: int = 1, margin: float = 1.0) -> Dispatch[StillQueue] | WaitUntil | Idle:
    return plan(queues, Policy(cost_margin=margin), NOW_S, free)


def test_nothing_waits_so_there_is_nothing_to_do() -> None:
    assert decide() == Idle()
    assert decide(free=0) == Idle()


def test_one_row_and_a_free_executor_waits_for_nobody() -> None:
    queue = waiting(1)
    assert decide(queue) == Dispatch(queue, 1, Reason.OLDEST)


def test_under_load_it_is_throughput_that_counts() -> None:
    costs = CostTable({1: 83.0, 16: 127.0, 64: 346.0}).prepare()
    calm = StillQueue(((99.0, math.inf),) * 64, costs)
    busy = StillQueue(((99.0, math.inf),) * 64, costs, load=0.9)
    assert decide(calm) == Dispatch(calm, 16, Reason.OLDEST)
    assert decide(busy) == Dispatch(busy, 64, Reason.OLDEST)
    other = StillQueue(((99.5, math.inf),), load=0.9)
    assert decide(calm, other) == Dispatch(calm, 64, Reason.OLDEST), "the load of the others is load too"


def test_a_model_that_had_its_share_lets_the_others_go_first() -> None:
    flood = StillQueue(((98.0, math.inf),) * 100, share=used(7.0))
    other = StillQueue(((99.0, math.inf),), share=used(6.9))
    assert decide(flood, other) == Dispatch(other, 1, Reason.OLDEST)
    urgent = StillQueue(((98.0, NOW_S + 1.1),) * 100, share=used(7.0))
    assert decide(urgent, other) == Dispatch(other, 1, Reason.OLDEST), "nor do deadlines buy it more"
    within = StillQueue(((98.0, math.inf),) * 100, share=used(6.904))
    assert decide(within, other) == Dispatch(within, 8, Reason.OLDEST)


def test_without_a_free_executor_it_waits_until_the_first_row_would_be_too_late() -> None:
    assert decide(waiting(3, due_s=110.0), waiting(2, due_s=107.5), free=0) == WaitUntil(106.5)
    assert decide(waiting(3), free=0) == WaitUntil(math.inf)


def test_the_queue_whose_head_arrived_first_is_served() -> None:
    late, early = waiting(8, arrived_s=99.5), waiting(1, arrived_s=99.0)
    assert decide(late, early) == Dispatch(early, 1, Reason.OLDEST)


def test_deadlines_that_any_order_meets_do_not_change_the_order() -> None:
    early, urgent = waiting(1, arrived_s=98.0, due_s=200.0), waiting(1, arrived_s=99.0, due_s=NOW_S + 2.0)
    assert decide(early, urgent) == Dispatch(early, 1, Reason.OLDEST)


def test_a_deadline_in_danger_goes_first() -> None:
    early, urgent = waiting(8, arrived_s=98.0, due_s=200.0), waiting(1, arrived_s=99.0, due_s=NOW_S + 2.0)
    assert decide(early, urgent) == Dispatch(urgent, 1, Reason.DEADLINE)


def test_a_margin_sees_danger_earlier() -> None:
    early, urgent = waiting(1, arrived_s=98.0, due_s=200.0), waiting(1, arrived_s=99.0, due_s=NOW_S + 2.0)
    assert decide(early, urgent, margin=1.5) == Dispatch(urgent, 1, Reason.DEADLINE)


def test_a_quicker_bucket_saves_a_deadline_when_it_is_nearly_as_efficient() -> None:
    steep = CostTable({1: 1.0, 2: 1.5, 4: 2.6, 8: 4.8})
    queue = StillQueue(((99.0, NOW_S + 2.0),) * 2 + ((99.0, 200.0),) * 14, steep)
    assert decide(queue) == Dispatch(queue, 2, Reason.RESCUE)


def test_late_rows_are_given_up_when_saving_them_would_waste_more() -> None:
    flat = CostTable({1: 1.0, 8: 1.2})
    queue = StillQueue(((99.0, NOW_S + 1.1),) + ((99.0, NOW_S + 1.5),) * 15, flat)
    assert decide(queue) == Dispatch(queue, 8, Reason.SHED, give_up_before_s=NOW_S + 1.2)


def test_rows_are_not_given_up_when_no_other_would_be_left() -> None:
    flat = CostTable({1: 1.0, 8: 1.2})
    queue = waiting(3, due_s=NOW_S + 1.1, costs=flat)
    assert decide(queue) == Dispatch(queue, 1, Reason.RESCUE)


def test_after_giving_up_the_bucket_fits_the_rows_that_are_left() -> None:
    costs = CostTable({1: 1.0, 2: 1.05, 8: 1.2})
    queue = StillQueue(((99.0, NOW_S + 1.02), (99.0, NOW_S + 3.0), (99.0, NOW_S + 3.0)), costs)
    assert decide(queue) == Dispatch(queue, 2, Reason.SHED, give_up_before_s=NOW_S + 1.05)


def test_a_row_without_a_deadline_does_not_make_a_meetable_one_late() -> None:
    endless, urgent = waiting(200, arrived_s=1.0), waiting(1, due_s=NOW_S + 1.5)
    assert decide(endless, urgent) == Dispatch(urgent, 1, Reason.DEADLINE)


QUEUES = st.lists(
    st.builds(
        StillQueue,
        st.lists(
            st.tuples(st.floats(0, NOW_S), st.one_of(st.just(math.inf), st.floats(NOW_S + 1.001, NOW_S + 60))),
            min_size=1,
            max_size=40,
        ).map(tuple),
        st.sampled_from([SMALL, CostTable({1: 1.0}), CostTable({4: 0.2, 16: 0.9}), CostTable({1: 1.0, 8: 1.001})]),
    ),
    max_size=6,
)


@given(queues=QUEUES, free=st.integers(1, 4))
def test_a_free_executor_and_a_waiting_row_give_a_dispatch_that_runs_a_row_in_time(
    queues: list[StillQueue], free: int
) -> None:
    decision = plan(queues, Policy(), NOW_S, free)
    if not queues:
        assert decision == Idle()
        return
    assert isinstance(decision, Dispatch)
    queue, finish_s = decision.queue, NOW_S + decision.queue.costs.cost(decision.bucket)
    n_given_up = queue.rows_due_before(decision.give_up_before_s)
    assert n_given_up < queue.n_rows
    kept = [due_s for _, due_s in queue.rows if due_s >= decision.give_up_before_s]
    if decision.reason is Reason.RESCUE:
        assert min(kept) >= finish_s * (1 - 1e-12)
    elif decision.reason is not Reason.OLDEST:
        assert all(due_s >= finish_s for due_s in kept)
    else:
        assert queue.oldest_s == min(other.oldest_s for other in queues)
        assert all(due_s >= finish_s for due_s in kept)
        assert n_given_up == 0


@given(queues=QUEUES, free=st.integers(0, 3))
def test_the_same_arguments_give_the_same_decision(queues: list[StillQueue], free: int) -> None:
    assert plan(queues, Policy(), NOW_S, free) == plan(tuple(queues), Policy(), NOW_S, free)

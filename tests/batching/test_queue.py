"""A group's queue against a plain list."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.batching import CostTable, Group, Item, Quota
from server.batching.items import PRIORITY
from tests.batching.doubles import SMALL_COSTS


def ignore(item: Item) -> None:
    """Nobody waits for these items."""


def make_group() -> Group:
    return Group("g", CostTable(SMALL_COSTS))


def make_item(
    group: Group,
    n_rows: int,
    *,
    arrived_s: float = 0.0,
    deadline_s: float | None = None,
    priority: int = PRIORITY,
) -> Item:
    return Item(group, n_rows, None, arrived_s=arrived_s, deadline_s=deadline_s, on_done=ignore, priority=priority)


def head_s(item: Item) -> float:
    """When it arrived, moved by a second for each level of priority."""
    return item.arrived_s + (item.priority - PRIORITY)


DEADLINES = st.one_of(st.none(), st.integers(0, 20))
PUSH = st.tuples(st.just("push"), st.integers(1, 5), DEADLINES, st.just(PRIORITY))
PUSH_PREFERRED = st.tuples(st.just("push"), st.integers(1, 5), DEADLINES, st.sampled_from([1, 4, PRIORITY, 9]))
TAKE = st.tuples(st.just("take"), st.integers(1, 8), st.booleans(), st.just(0))
DROP = st.tuples(st.just("drop"), st.integers(0, 1_000), st.none(), st.just(0))


@given(
    steps=st.one_of(
        st.lists(st.one_of(PUSH, PUSH, TAKE, DROP), max_size=200),
        st.lists(st.one_of(PUSH, PUSH_PREFERRED, TAKE, DROP), max_size=200),
    )
)
def test_the_queue_does_what_a_list_would(steps: list[tuple[str, int, int | bool | None, int]]) -> None:
    group = make_group()
    model: list[Item] = []  # Waiting items, by arrival.
    for step_number, (step, number, option, priority) in enumerate(steps):
        if step == "push":
            item = make_item(group, number, arrived_s=step_number * 0.37, deadline_s=option, priority=priority)
            group.push(item)
            model.append(item)
        elif step == "take":
            order = sorted(model, key=(lambda item: (item.priority, item.due_s)) if option else head_s)
            expected, room = [], number
            for item in order:
                n_rows = min(room, item.n_rows - item.next_row)
                if n_rows:
                    expected.append((item, item.next_row, item.next_row + n_rows))
                room -= n_rows
            assert group.take(number, by_deadline=bool(option)) == expected
            model = [item for item in model if item.next_row < item.n_rows]
        elif model:
            item = model.pop(number % len(model))
            n_rows = item.n_rows - item.next_row
            assert group.drop(item) == n_rows
        assert group.n_items == len(model)
        assert group.n_rows == sum(item.n_rows - item.next_row for item in model)
        assert group.oldest_s == min(map(head_s, model), default=math.inf)
        assert group.due_s == min((item.due_s for item in model), default=math.inf)
        for limit_s in (0.0, 7.0, math.inf):
            due = [item.n_rows - item.next_row for item in model if item.due_s < limit_s]
            assert group.rows_due_before(limit_s) == sum(due)
        if model:
            assert group.first() is min(model, key=head_s)
            assert group.first(by_deadline=True).due_s == group.due_s


def test_items_with_equal_deadlines_leave_in_order_of_arrival() -> None:
    group = make_group()
    items = [make_item(group, 1, arrived_s=i, deadline_s=deadline_s) for i, deadline_s in enumerate((9, 5, 5, 5))]
    for item in items:
        group.push(item)
    assert [item for item, _, _ in group.take(4, by_deadline=True)] == [items[1], items[2], items[3], items[0]]


@pytest.mark.parametrize("mixed", [False, True])
def test_cancelled_items_behind_a_stuck_head_are_let_go(*, mixed: bool) -> None:
    group = make_group()
    group.push(make_item(group, 1, deadline_s=1_000.0))
    for _ in range(1_000):
        item = make_item(group, 1, deadline_s=500.0 if mixed else 2_000.0)
        group.push(item)
        group.drop(item)
    assert len(group._lane._items) <= 140
    assert len(group._lane._heap or ()) <= 140


def test_items_run_by_deadline_behind_a_stuck_head_are_let_go() -> None:
    group = make_group()
    group.push(make_item(group, 1, deadline_s=1_000.0))
    for _ in range(1_000):
        group.push(make_item(group, 1, deadline_s=500.0))
        group.take(1, by_deadline=True)
    assert group.n_rows == 1
    assert len(group._lane._items) <= 140


def test_a_quota_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_rows is 0"):
        Quota(0)


def test_a_request_of_high_priority_goes_before_those_that_came_a_little_earlier() -> None:
    group = make_group()
    waits = make_item(group, 1, arrived_s=0.0)
    earlier = make_item(group, 1, arrived_s=9.5)
    preferred = make_item(group, 1, arrived_s=10.0, priority=4)
    for item in (waits, earlier, preferred):
        group.push(item)
    assert [item for item, _, _ in group.take(3, by_deadline=False)] == [waits, preferred, earlier]


def test_when_not_all_can_be_in_time_it_is_low_priority_that_is_late() -> None:
    group = make_group()
    low = make_item(group, 2, deadline_s=1.0, priority=9)
    high = make_item(group, 2, arrived_s=5.0, deadline_s=6.0, priority=1)
    for item in (low, high):
        group.push(item)
    assert (group.due_s, group.first(by_deadline=True)) == (1.0, low)
    assert group.take(3, by_deadline=True) == [(high, 0, 2), (low, 0, 1)]

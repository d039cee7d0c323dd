"""What the supervisor decides, without a process: instructions for events, at times that a test names."""

from __future__ import annotations

import signal

import pytest

from server.supervise.supervision import ENGINE, REFUSED, CloseDoor, CloseDoors, End, Signal, Start, Supervision

WORKERS = ("worker 1", "worker 2")
TERM, KILL = signal.SIGTERM, signal.SIGKILL


@pytest.fixture
def supervision() -> Supervision:
    """One whose children run since 0 s."""
    supervision = Supervision(WORKERS, grace_s=30)
    assert supervision.start(0) == [Start(ENGINE), Start("worker 1"), Start("worker 2")]
    assert supervision.next_s() is None
    return supervision


@pytest.mark.parametrize("name", [ENGINE, "worker 1"])
def test_what_ends_is_started_again_at_once(supervision: Supervision, name: str) -> None:
    # Callers go to the other worker until the new one listens.
    door = [] if name == ENGINE else [CloseDoor(name)]
    assert supervision.exited(name, -9, 100) == [*door, Start(name)]


def test_what_ends_again_and_again_is_started_after_pauses_that_grow_up_to_a_bound(supervision: Supervision) -> None:
    now_s, pauses = 100.0, []
    assert supervision.exited("worker 1", 1, now_s) == [CloseDoor("worker 1"), Start("worker 1")]
    for _ in range(9):
        assert supervision.exited("worker 1", 1, now_s) == [CloseDoor("worker 1")]
        next_s = supervision.next_s()
        assert next_s is not None
        assert supervision.due(next_s - 0.01) == []
        assert supervision.due(next_s) == [Start("worker 1")]
        pauses.append(next_s - now_s)
        now_s = next_s
    assert pauses == [0.25, 0.5, 1, 2, 4, 8, 10, 10, 10]
    # One that ran for a while before it ended is started at once again.
    assert supervision.exited("worker 1", 1, now_s + 60) == [CloseDoor("worker 1"), Start("worker 1")]


def test_the_last_door_stays_open(supervision: Supervision) -> None:
    supervision.exited("worker 1", 1, 1)
    assert supervision.exited("worker 1", 1, 1) == [CloseDoor("worker 1")]
    # Nobody else is there to take its callers: they wait.
    assert supervision.exited("worker 2", 1, 1) == [Start("worker 2")]
    assert supervision.exited("worker 2", 1, 1) == []


def test_an_engine_that_refuses_to_start_ends_the_server_with_an_error(supervision: Supervision) -> None:
    assert supervision.exited(ENGINE, REFUSED, 1) == [
        CloseDoors(),
        Signal("worker 1", TERM),
        Signal("worker 2", TERM),
    ]
    assert supervision.exited("worker 2", 0, 2) == []
    assert supervision.exited("worker 1", 0, 2) == [End(1)]


def test_an_engine_that_has_run_and_then_refuses_to_start_is_tried_again(supervision: Supervision) -> None:
    assert supervision.exited(ENGINE, -9, 60) == [Start(ENGINE)]
    assert supervision.exited(ENGINE, REFUSED, 61) == []
    assert supervision.due(70) == [Start(ENGINE)]


def test_stopping_lets_workers_go_first_and_the_engine_after_them(supervision: Supervision) -> None:
    assert supervision.stop(100) == [CloseDoors(), Signal("worker 1", TERM), Signal("worker 2", TERM)]
    assert supervision.exited("worker 1", 0, 101) == []
    assert supervision.exited("worker 2", 0, 102) == [Signal(ENGINE, TERM)]
    assert supervision.exited(ENGINE, 0, 103) == [End(0)]


def test_nothing_is_started_again_once_the_server_stops(supervision: Supervision) -> None:
    supervision.exited("worker 1", 1, 1)
    supervision.exited("worker 1", 1, 1)
    assert supervision.stop(1.1) == [CloseDoors(), Signal("worker 2", TERM)]
    assert supervision.due(2) == []
    # The engine ends by itself meanwhile: the last worker's end is the server's.
    assert supervision.exited(ENGINE, -9, 3) == []
    assert supervision.exited("worker 2", 0, 4) == [End(0)]


def test_who_does_not_leave_is_killed_after_the_grace_period(supervision: Supervision) -> None:
    supervision.stop(100)
    supervision.exited("worker 1", 0, 101)
    assert supervision.next_s() == 135
    assert supervision.due(134) == []
    assert supervision.due(135) == [Signal(ENGINE, KILL), Signal("worker 2", KILL)]
    assert supervision.next_s() is None
    assert supervision.exited(ENGINE, -9, 136) == []
    assert supervision.exited("worker 2", -9, 136) == [End(0)]


def test_the_engine_gets_a_moment_to_leave_and_no_grace_period_of_its_own(supervision: Supervision) -> None:
    supervision.stop(100)
    supervision.exited("worker 1", 0, 101)
    assert supervision.exited("worker 2", 0, 134) == [Signal(ENGINE, TERM)]
    assert supervision.next_s() == 139
    assert supervision.due(139) == [Signal(ENGINE, KILL)]
    assert supervision.exited(ENGINE, -9, 139) == [End(0)]


def test_told_twice_to_stop_means_at_once(supervision: Supervision) -> None:
    supervision.stop(100)
    assert supervision.stop(101) == [Signal(ENGINE, KILL), Signal("worker 1", KILL), Signal("worker 2", KILL)]
    assert supervision.stop(102) == []


def test_a_hang_up_is_passed_on_to_who_runs(supervision: Supervision) -> None:
    supervision.exited("worker 1", 1, 1)
    supervision.exited("worker 1", 1, 1)
    assert supervision.hang_up() == [Signal(ENGINE, signal.SIGHUP), Signal("worker 2", signal.SIGHUP)]

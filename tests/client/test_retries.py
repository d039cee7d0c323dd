"""When a request is sent again: by a clock that stands still while nobody waits."""

from __future__ import annotations

from typing import Any

import pytest

from rowwise._retries import Retries
from rowwise._steps import Pause, Send
from rowwise.errors import ConnectionFailed, InvalidRequest, NotConnected, Overloaded, TimedOut

QUESTION = Send(method="GET", path="/v1/models", repeats=True)
ORDER = Send(method="DELETE", path="/v1/models/m")


class Sending:
    """Carries out a call's steps; ``outcomes`` are those of its requests, and each request takes ``took_s``."""

    def __init__(self, *, chance: float = 0.5, most: int = 3, took_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.took_s = took_s
        self.retries = Retries(most, clock=lambda: self.now_s, chance=lambda: chance)
        self.pauses_s: list[float] = []
        self.timeouts_s: list[float | None] = []

    def send(self, request: Send, *outcomes: Any, timeout_s: float = 30.0, is_exact: bool = True) -> Any:
        """``is_exact``: False where not all of the outcomes may be asked for."""
        steps = self.retries.send(request, timeout_s=timeout_s)
        rest = list(outcomes)
        step = next(steps)
        while True:
            try:
                if isinstance(step, Pause):
                    self.pauses_s.append(step.seconds)
                    self.now_s += step.seconds
                    step = steps.send(None)
                    continue
                assert isinstance(step, Send)
                self.timeouts_s.append(step.timeout_s)
                self.now_s += self.took_s
                outcome = rest.pop(0)
                step = steps.throw(outcome) if isinstance(outcome, Exception) else steps.send(outcome)
            except StopIteration as stop:
                assert not rest or not is_exact
                return stop.value


def overloaded(retry_after_s: float | None = None) -> Overloaded:
    return Overloaded(429, "full", retry_after_s=retry_after_s)


def test_what_was_refused_for_now_is_sent_again_when_it_may_be() -> None:
    sending = Sending()
    assert sending.send(QUESTION, overloaded(3.0), "answer") == "answer"
    (pause_s,) = sending.pauses_s
    assert 3.0 <= pause_s <= 3.1
    assert sending.timeouts_s == [30.0, pytest.approx(30 - pause_s)]


def test_without_a_hint_pauses_double_and_differ_by_chance() -> None:
    sending = Sending(chance=1.0)
    with pytest.raises(Overloaded):
        sending.send(QUESTION, *[overloaded()] * 4)
    assert sending.pauses_s == pytest.approx([0.05, 0.1, 0.2])
    least = Sending(chance=0.0)
    with pytest.raises(Overloaded):
        least.send(QUESTION, *[overloaded()] * 4)
    assert least.pauses_s == pytest.approx([0.025, 0.05, 0.1])


@pytest.mark.parametrize("error", [ConnectionFailed("it broke"), overloaded(), overloaded(1.0)])
def test_what_changes_something_is_not_sent_again_when_it_may_have_been_done(error: Exception) -> None:
    sending = Sending()
    with pytest.raises(type(error)):
        sending.send(ORDER, error)
    assert sending.pauses_s == []


def test_what_was_never_received_is_sent_again_whatever_it_is() -> None:
    assert Sending().send(ORDER, NotConnected("refused"), NotConnected("refused"), "done") == "done"


@pytest.mark.parametrize("error", [TimedOut("late"), InvalidRequest(400, "wrong"), ValueError("a bug")])
def test_what_will_not_go_better_is_not_sent_again(error: Exception) -> None:
    with pytest.raises(type(error)):
        Sending().send(QUESTION, error)


def test_nobody_waits_for_what_would_come_after_the_deadline() -> None:
    sending = Sending()
    with pytest.raises(Overloaded):
        sending.send(QUESTION, overloaded(5.0), timeout_s=5.0)
    assert sending.pauses_s == []


def test_time_that_attempts_took_is_taken_off_the_deadline() -> None:
    sending = Sending(took_s=4.0)
    with pytest.raises(ConnectionFailed):
        sending.send(QUESTION, *[ConnectionFailed("it broke")] * 3, timeout_s=10.0)
    assert sending.timeouts_s == pytest.approx([10.0, 6.0, 2.0], abs=0.2)


def test_where_everything_is_refused_retries_are_a_tenth_of_the_requests() -> None:
    sending = Sending(most=3)
    n_requests = 500
    for _ in range(n_requests):
        with pytest.raises(Overloaded):
            sending.send(QUESTION, *[overloaded()] * 4, is_exact=False)
    assert 0.1 * n_requests <= len(sending.pauses_s) <= 0.1 * n_requests + 10


def test_none_means_none() -> None:
    with pytest.raises(NotConnected):
        Sending(most=0).send(QUESTION, NotConnected("refused"))


def test_an_upload_may_take_as_long_as_it_takes_and_is_sent_again_all_the_same() -> None:
    sending = Sending(took_s=900.0)
    upload = Send(method="PUT", path="/v1/models/m", repeats=True, is_long=True)
    assert sending.send(upload, ConnectionFailed("it broke"), "taken", timeout_s=120.0) == "taken"
    assert sending.timeouts_s == [120.0, 120.0]

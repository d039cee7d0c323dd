"""Calls that may never end: who waits gets an answer, an error, or runs out of patience."""

from __future__ import annotations

import threading

import pytest

from vectorizer import patience as module
from vectorizer.patience import OutOfPatience, Patience

LONG_S = 60.0


def test_calls_that_end_share_a_thread_which_ends_with_the_block() -> None:
    with Patience() as patience:
        threads = {patience.within(LONG_S, threading.current_thread) for _ in range(3)}
        assert threading.current_thread() not in threads
        (thread,) = threads
        assert thread.is_alive()
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_what_a_call_raises_is_raised_and_the_next_call_is_answered() -> None:
    def fail() -> None:
        raise TimeoutError("of its own")

    with Patience() as patience:
        with pytest.raises(TimeoutError, match="of its own"):
            patience.within(LONG_S, fail)
        assert patience.within(LONG_S, max, 3, 5) == 5


def test_call_that_heeds_its_cancellation_keeps_the_thread() -> None:
    cancelled = threading.Event()
    with Patience() as patience:
        before = patience.within(LONG_S, threading.current_thread)
        with pytest.raises(OutOfPatience) as caught:
            patience.within(0.0, cancelled.wait, cancel=cancelled.set)
        assert not caught.value.works_on
        assert patience.within(LONG_S, threading.current_thread) is before


def test_call_that_works_on_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HEEDING_S", 0.01)
    ends = threading.Event()
    with Patience() as patience:
        before = patience.within(LONG_S, threading.current_thread)
        with pytest.raises(OutOfPatience) as caught:
            patience.within(0.0, ends.wait, cancel=lambda: None)
        assert caught.value.works_on
        assert patience.within(LONG_S, threading.current_thread) is not before
        ends.set()
        before.join(LONG_S)
        assert not before.is_alive()

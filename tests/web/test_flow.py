"""Back-pressure of one connection, without a socket: what is read depends on what is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from server.web.flow import Flow


class Loop:
    """Keeps the one timer that is set."""

    def __init__(self) -> None:
        self.ring: Callable[[], None] | None = None

    def call_later(self, _delay_s: float, ring: Callable[[], None]) -> Loop:
        self.ring = ring
        return self

    def cancel(self) -> None:
        self.ring = None

    def pass_time(self) -> None:
        ring, self.ring = self.ring, None
        assert ring is not None
        ring()


class Transport:
    """Has so many bytes to send, and remembers what it was told."""

    def __init__(self) -> None:
        self.n_unsent = 0
        self.is_reading = True
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.n_unsent

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


@pytest.fixture
def parts() -> tuple[Flow, Transport, Any]:
    async def make() -> tuple[Flow, Transport, Any]:
        transport, loop = Transport(), Loop()
        return Flow(transport, loop, stall_s=10.0), transport, loop  # type: ignore[arg-type]

    return asyncio.run(make())


def test_nothing_is_read_while_answers_are_not_taken(parts: tuple[Flow, Transport, Loop]) -> None:
    flow, transport, loop = parts
    transport.n_unsent = 100_000
    flow.pause_writing()
    assert not transport.is_reading
    flow.resume_reading()  # whoever asks
    assert not transport.is_reading
    flow.pause_reading()
    flow.resume_writing()
    assert not transport.is_reading
    flow.resume_reading()
    assert transport.is_reading
    assert loop.ring is None


def test_who_takes_next_to_nothing_is_cut_off_and_who_takes_some_is_not(parts: tuple[Flow, Transport, Loop]) -> None:
    flow, transport, loop = parts
    transport.n_unsent = 10**6
    flow.pause_writing()
    for n_unsent in (989_760, 900_000, 950_000, 100_000):  # once, an answer came
        transport.n_unsent = n_unsent
        loop.pass_time()
        assert not transport.is_aborted
    transport.n_unsent -= 10_239
    loop.pass_time()
    assert transport.is_aborted
    flow.resume_writing()  # as the connection is lost
    assert loop.ring is None

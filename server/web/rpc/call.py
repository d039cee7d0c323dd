"""What a service knows of the call that it answers, whatever carries it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from server.rights import ANYBODY, Grant
from server.web.auth import allow
from server.web.errors import NotOffered
from server.web.rpc.known_messages import KnownMessages
from server.web.scopes import OPEN, Rule

__all__ = ["Call", "Ending", "Method", "StreamAnswer", "UnaryAnswer", "allow_call", "not_offered"]


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """One call: who makes it, and until when it waits."""

    #: Lower-case names.
    headers: Mapping[bytes, bytes]
    peer: tuple[str, int] | None
    request_id: str
    #: Seconds until the caller's deadline when the call came; None where it has none.
    timeout_s: float | None
    #: When it came, by the system's monotonic clock.
    received_s: float = field(default_factory=time.monotonic)
    #: What its caller may do, where the method's rule asks.
    grant: Grant = ANYBODY
    #: Which model it is about, once that is known.
    model: str | None = None
    #: What follows the answer beside its status.
    trailing: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def host(self) -> str | None:
        """The caller's address."""
        return None if self.peer is None else self.peer[0]

    def left_s(self) -> float | None:
        """Return the seconds until the deadline."""
        return None if self.timeout_s is None else self.timeout_s - (time.monotonic() - self.received_s)


#: Answers one message with one. Errors: RowwiseError.
UnaryAnswer = Callable[[Call, bytes], Awaitable[bytes]]
#: Answers messages with messages. Errors: RowwiseError.
StreamAnswer = Callable[[Call, AsyncIterator[bytes]], AsyncIterator[bytes]]


class Ending(Protocol):
    """Takes how a call ended, once, now or later on the event loop."""

    def __call__(self, answer: bytes | None, error: Exception | None) -> None:
        """Take an answer, or an error instead."""


#: Answers one message without a task; returns what takes the call back.
QuickAnswer = Callable[[Call, bytes, Ending], Callable[[], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method of a service: exactly one of the first three is there. ``rule``: who may call it."""

    unary: UnaryAnswer | None = None
    quick: QuickAnswer | None = None
    stream: StreamAnswer | None = None
    rule: Rule = OPEN
    #: Where what its messages are is remembered, of a method whose plain calls are answered together.
    messages: KnownMessages | None = None


def allow_call(call: Call, model: str, rule: Rule) -> None:
    """Let a call pass that turned out to be about a model. Errors: Forbidden."""
    call.model = model
    allow(call.grant, model, rule)


def not_offered(sentence: str) -> Method:
    """Return a method that says why it does nothing."""

    async def answer(_call: Call, _body: bytes) -> bytes:
        raise NotOffered(sentence)

    return Method(unary=answer)

"""What a service knows of the call that it answers, whatever carries it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from server.web.errors import NotOffered

__all__ = ["Call", "Method", "StreamAnswer", "UnaryAnswer", "not_offered", "peer_address"]


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """One call: who makes it, and until when it waits."""

    #: Lower-case names.
    metadata: Mapping[str, str | bytes]
    peer: tuple[str, int] | None
    request_id: str
    #: Seconds until the caller's deadline when the call came; None where it has none.
    timeout_s: float | None
    #: When it came, by the system's monotonic clock.
    received_s: float = field(default_factory=time.monotonic)
    #: What follows the answer beside its status.
    trailing: list[tuple[str, str]] = field(default_factory=list)

    def header(self, name: str) -> bytes | None:
        """Return one of the metadata as a header's value."""
        value = self.metadata.get(name)
        return value.encode("latin-1", "replace") if isinstance(value, str) else value

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return all of the metadata as headers."""
        return [(name.encode("latin-1", "replace"), self.header(name) or b"") for name in self.metadata]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method of a service: exactly one of both is there."""

    unary: UnaryAnswer | None = None
    stream: StreamAnswer | None = None
    #: True: the caller sends one message, and is answered with a stream.
    takes_one: bool = False


def not_offered(sentence: str) -> Method:
    """Return a method that says why it does nothing."""

    async def answer(_call: Call, _body: bytes) -> bytes:
        raise NotOffered(sentence)

    return Method(unary=answer)


def peer_address(peer: str) -> tuple[str, int] | None:
    """Return host and port of a peer as gRPC names it, ``ipv4:127.0.0.1:5000``; None for what is no such address."""
    family, _, address = peer.partition(":")
    host, _, port = unquote(address).rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.strip("[]"), int(port)

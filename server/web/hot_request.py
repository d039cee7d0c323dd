"""One prediction in the hot lane, and the headers that decide whether a request is one."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from server.protocol import WireFormat
from server.web.paths import VerbPath
from server.web.predict import PredictCall
from server.web.request_headers import JSON_LENGTH
from server.web.status import Reply

__all__ = ["HotRequest", "headers_of_interest"]

#: Headers that decide whether a request is hot, or that a prediction reads.
_LOOKED_AT = frozenset(
    {
        JSON_LENGTH,
        b"connection",
        b"content-encoding",
        b"content-length",
        b"expect",
        b"traceparent",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
        b"x-request-timeout-ms",
        b"x-rowwise-explain",
    }
)
#: Those that a hot request does not have.
_UNUSUAL = frozenset({b"content-encoding", b"expect", b"transfer-encoding", b"upgrade"})


class Lane(Protocol):
    """What a request asks of its connection."""

    def flush(self) -> None:
        """Write the replies whose turn it is."""


class HotRequest:
    """One prediction of a connection, from its headers to its reply."""

    __slots__ = (
        "body",
        "call",
        "explain",
        "keep_alive",
        "n_held",
        "n_received",
        "path",
        "protocol",
        "received_s",
        "reply",
        "request_id",
        "started_s",
        "timeout_s",
        "traceparent",
        "wire",
    )

    def __init__(
        self,
        protocol: Lane,
        path: VerbPath,
        request_id: str,
        timeout_s: float | None,
        *,
        explain: bool,
        wire: WireFormat,
    ) -> None:
        self.protocol = protocol
        self.path = path
        self.request_id = request_id
        self.timeout_s = timeout_s
        self.explain = explain
        #: How its body is read.
        self.wire = wire
        self.traceparent: bytes | None = None
        self.keep_alive = True
        self.started_s = 0.0
        #: When the headers were complete, by the system's monotonic clock.
        self.received_s = time.monotonic()
        #: Bytes of the body that have come, and that the budget was asked for.
        self.n_received = 0
        self.n_held = 0
        #: Its parts as they come.
        self.body: list[bytes] = []
        self.call: PredictCall | None = None
        self.reply: Reply | None = None

    def replied(self, reply: Reply) -> None:
        """Take the reply; it leaves when its turn has come."""
        self.reply = reply
        self.protocol.flush()


def headers_of_interest(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes] | None:
    """Return the headers that a prediction reads; None if one of them makes the request unusual."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _LOOKED_AT:
            if name in _UNUSUAL or name in found:
                return None
            found[name] = value
    return found

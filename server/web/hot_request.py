"""One prediction in the hot lane."""

from __future__ import annotations

from typing import Protocol

from server.protocol import Body, BodyFormat, Encoded, Headers
from server.web.comeback import Comeback
from server.web.gathered_request import GatheredRequest
from server.web.paths import VerbPath
from server.web.status import Reply

__all__ = ["Busy", "HotRequest", "Lane"]


class Busy:
    """Stands for a cold request under way, so that uvicorn puts the next one into its pipeline."""

    response_complete = False


class Lane(Protocol):
    """What a request asks of its connection."""

    #: Who is told of its answers and of its next requests.
    comeback: Comeback

    def flush(self) -> None:
        """Write the replies whose turn it is."""

    def answered(self, hot: HotRequest, body: Body, headers: Headers) -> None:
        """Write a prediction when it is its turn."""

    def new_request_id(self) -> str:
        """Make an id for a request that brought none."""


class HotRequest(GatheredRequest):
    """One prediction of a connection, from its headers to its reply."""

    __slots__ = (
        "explain",
        "is_plain",
        "is_whole",
        "keep_alive",
        "n_body",
        "n_held",
        "n_received",
        "protocol",
        "started_s",
        "traceparent",
    )

    def __init__(
        self,
        protocol: Lane,
        path: VerbPath,
        request_id: str | None,
        timeout_s: float | None,
        *,
        explain: bool,
        wire: BodyFormat,
        caller: str | None = None,
        received_s: float = 0.0,
    ) -> None:
        super().__init__(path, request_id, timeout_s, wire=wire, caller=caller, received_s=received_s)
        self.protocol = protocol
        self.explain = explain
        self.traceparent: bytes | None = None
        self.keep_alive = True
        self.started_s = 0.0
        #: Bytes that its body has, as its head says.
        self.n_body = 0
        #: Bytes of the body that have come, and that the budget was asked for.
        self.n_received = 0
        self.n_held = 0
        #: True once all of it has come.
        self.is_whole = False
        #: True: its head has nothing that is its own.
        self.is_plain = False

    @property
    def comeback(self) -> Comeback:
        """Who is told of its answer, and of the next request of its connection."""
        return self.protocol.comeback

    def new_request_id(self) -> str:
        """Make an id for a request that brought none."""
        return self.protocol.new_request_id()

    def answered(self, encoded: Encoded) -> None:
        """Take a prediction; it leaves when its turn has come."""
        self.is_answered = True
        self.protocol.answered(self, *encoded)

    def replied(self, reply: Reply) -> None:
        """Take the reply; it leaves when its turn has come."""
        super().replied(reply)
        self.protocol.flush()

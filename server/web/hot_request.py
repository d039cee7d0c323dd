"""One prediction in the hot lane."""

from __future__ import annotations

from typing import Protocol

from server.protocol import Body, BodyFormat, Encoded, Headers, Octets
from server.rights import Rate
from server.web.paths import VerbPath
from server.web.predict import PredictCall
from server.web.status import Reply

__all__ = ["Busy", "HotRequest", "Lane"]


class Busy:
    """Stands for a cold request under way, so that uvicorn puts the next one into its pipeline."""

    response_complete = False


class Lane(Protocol):
    """What a request asks of its connection."""

    def flush(self) -> None:
        """Write the replies whose turn it is."""

    def answered(self, hot: HotRequest, body: Body, headers: Headers) -> None:
        """Write a prediction when it is its turn."""

    def new_request_id(self) -> str:
        """Make an id for a request that brought none."""


class Together(Protocol):
    """What admitted a request together with others."""

    def abandon(self, hot: HotRequest) -> None:
        """Take its rows back if they still wait: its caller is gone."""


class HotRequest:
    """One prediction of a connection, from its headers to its reply."""

    __slots__ = (
        "_request_id",
        "body",
        "call",
        "caller",
        "explain",
        "handle",
        "id_text",
        "is_answered",
        "is_gone",
        "is_plain",
        "is_whole",
        "keep_alive",
        "n_body",
        "n_held",
        "n_received",
        "path",
        "protocol",
        "rate",
        "received_s",
        "reply",
        "started_s",
        "timeout_s",
        "together",
        "traceparent",
        "wire",
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
        self.protocol = protocol
        self.path = path
        self._request_id = request_id
        self.caller = caller
        self.timeout_s = timeout_s
        self.explain = explain
        #: How its body is read.
        self.wire = wire
        self.traceparent: bytes | None = None
        self.keep_alive = True
        self.started_s = 0.0
        #: When the headers were complete, by the system's monotonic clock; 0: in the tick in which it is gathered.
        self.received_s = received_s
        #: Bytes that its body has, as its head says.
        self.n_body = 0
        #: Bytes of the body that have come, and that the budget was asked for.
        self.n_received = 0
        self.n_held = 0
        #: Its parts as they come.
        self.body: list[Octets] = []
        #: What its rows are charged to, beyond the first; None: nothing.
        self.rate: Rate | None = None
        #: True once all of it has come.
        self.is_whole = False
        #: True: its head has nothing that is its own.
        self.is_plain = False
        #: True: nobody waits for it.
        self.is_gone = False
        #: How it was admitted: alone, or together with others, who know it by its handle.
        self.call: PredictCall | None = None
        self.together: Together | None = None
        self.handle: object = None
        #: What its answer repeats of it, as it is written there.
        self.id_text: bytes | None = None
        #: True: its prediction was written together with others.
        self.is_answered = False
        self.reply: Reply | None = None

    @property
    def request_id(self) -> str:
        """The id that the answer carries: its own, or one that is made when it is first asked for."""
        if self._request_id is None:
            self._request_id = self.protocol.new_request_id()
        return self._request_id

    @property
    def own_request_id(self) -> str | None:
        """The id that it came with, or has been given."""
        return self._request_id

    def abandon(self) -> None:
        """Note that nobody waits for it, and take back what does not run."""
        self.is_gone = True
        if self.call is not None:
            self.call.abandon()
        elif self.together is not None:
            self.together.abandon(self)

    def answered(self, encoded: Encoded) -> None:
        """Take a prediction; it leaves when its turn has come."""
        self.is_answered = True
        self.protocol.answered(self, *encoded)

    def replied(self, reply: Reply) -> None:
        """Take the reply; it leaves when its turn has come."""
        self.reply = reply
        self.protocol.flush()

"""One prediction as those see it that answer predictions together, whichever protocol it came by."""

from __future__ import annotations

from time import monotonic
from typing import Protocol

from server.batching import Returning
from server.protocol import BodyFormat, Encoded, Octets
from server.rights import Rate
from server.web.comeback import Comeback
from server.web.paths import VerbPath
from server.web.predict import PredictCall
from server.web.status import CLIENT_GONE, OK, Reply

__all__ = ["GatheredRequest", "Together"]


class Together(Protocol):
    """What admitted a request together with others."""

    def abandon(self, hot: GatheredRequest) -> None:
        """Take its rows back if they still wait: its caller is gone."""


class GatheredRequest:
    """One prediction, from its arrival to its reply. How it is answered is its protocol's business."""

    __slots__ = (
        "_request_id",
        "body",
        "call",
        "caller",
        "gone_status",
        "handle",
        "id_text",
        "is_answered",
        "is_gone",
        "path",
        "rate",
        "received_s",
        "reply",
        "returning",
        "timeout_s",
        "together",
        "wire",
    )

    def __init__(
        self,
        path: VerbPath,
        request_id: str | None,
        timeout_s: float | None,
        *,
        wire: BodyFormat,
        caller: str | None,
        received_s: float = 0.0,
    ) -> None:
        self.path = path
        self._request_id = request_id
        self.caller = caller
        self.timeout_s = timeout_s
        #: How its body is read.
        self.wire = wire
        #: When its head was complete, by the system's monotonic clock; 0: in the tick in which it is gathered.
        self.received_s = received_s
        #: Its parts as they come.
        self.body: list[Octets] = []
        #: What its rows are charged to, beyond the first; None: nothing.
        self.rate: Rate | None = None
        #: Who counts on its caller to ask again, where it is answered alone; None: nobody does.
        self.returning: Returning | None = None
        #: True: nobody waits for it; and the status that is counted then.
        self.is_gone = False
        self.gone_status = CLIENT_GONE
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
            self._request_id = self.new_request_id()
        return self._request_id

    @property
    def own_request_id(self) -> str | None:
        """The id that it came with, or has been given."""
        return self._request_id

    @property
    def comeback(self) -> Comeback:
        """Who is told of its answer, and of the next request of its connection."""
        raise NotImplementedError

    def new_request_id(self) -> str:
        """Make an id for a request that brought none."""
        raise NotImplementedError

    def abandon(self, status: int = CLIENT_GONE) -> None:
        """Note that nobody waits for it, and take back what does not run. ``status`` is what is counted."""
        self.is_gone = True
        self.gone_status = status
        if self.call is not None:
            self.call.abandon(status)
        elif self.together is not None:
            self.together.abandon(self)

    def answered(self, encoded: Encoded) -> None:
        """Take a prediction."""
        raise NotImplementedError

    def replied(self, reply: Reply) -> None:
        """Take the reply."""
        self.reply = reply
        if self.returning is not None and reply.status == OK:
            self.returning.answered(1, monotonic())
            self.comeback.answered(self.returning, 1)

"""Header blocks that begin plain predictions: what a block means is found out once, and holds until rights change."""

from __future__ import annotations

from collections.abc import Mapping

from server.errors import RowwiseError
from server.rights import Rate
from server.web.errors import WebError
from server.web.front import Front
from server.web.http2.header_blocks import Headers
from server.web.rpc.call import Method
from server.web.rpc.framing import deadline_s
from server.web.rpc.known_messages import KnownMessages

__all__ = ["PlainHead", "Refused", "plain_head"]

#: What only the call has that sends them.
_OWN = (b"x-request-id", b"traceparent", b"x-rowwise-explain")
#: Models that one head is known to ask for. Past it, all are forgotten.
_MAX_MODELS = 64

_Peer = tuple[str, int] | None


class Refused(Exception):
    """A prediction may not pass. Who asks again, the way of other calls, is told why."""


class PlainHead:
    """What a block of headers means: a prediction by somebody who may, and nothing of its own but its message."""

    __slots__ = ("_front", "_n_changes", "_peer", "_rates", "caller", "headers", "messages", "method", "timeout_s")

    def __init__(
        self,
        front: Front,
        headers: Headers,
        peer: _Peer,
        method: Method,
        messages: KnownMessages,
        timeout_s: float | None,
    ) -> None:
        self._front = front
        #: A copy, as the block's own hold this.
        self.headers: Mapping[bytes, bytes] = dict(headers)
        self.method = method
        self._peer = peer
        #: What its rows are charged to, by the model's name.
        self._rates: dict[str, Rate | None] = {}
        self._n_changes = front.n_changes
        self.caller = None if peer is None else peer[0]
        self.messages = messages
        self.timeout_s = timeout_s

    @property
    def holds(self) -> bool:
        """True while nothing has changed by which it was decided."""
        return self._n_changes == self._front.n_changes

    def rate(self, model: str) -> Rate | None:
        """Let a prediction pass, and return what its rows beyond the first are charged to. Errors: Refused."""
        gate = self._front.gate
        if not gate.guards_predictions:
            return None
        try:
            rate = self._rates[model]
        except KeyError:
            try:
                rate = gate.predict(self.headers.items(), self._peer, model)
            except WebError:
                raise Refused from None
            if len(self._rates) >= _MAX_MODELS:
                self._rates.clear()
            self._rates[model] = rate
        else:
            if rate is not None and rate.take():
                raise Refused
        return rate


def plain_head(front: Front, method: Method, headers: Headers, peer: _Peer) -> PlainHead | None:
    """Return what a block of headers means, None if it begins something else, or something unusual."""
    gate = front.gate
    if method.messages is None or front.has_access_log or front.predictor.has_tracing or gate.looks_at_peers:
        return None
    if any(name in headers for name in _OWN):
        return None
    try:
        timeout_s = deadline_s(headers.get(b"grpc-timeout"))
        gate.admit(method.rule, headers.items(), peer)
    except RowwiseError:
        return None
    return PlainHead(front, headers, peer, method, method.messages, timeout_s)

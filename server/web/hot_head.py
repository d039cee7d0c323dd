"""Which requests are hot: predictions as nearly all clients send them, with nothing in their heads that is unusual."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from server.protocol import TFS_JSON, ProtocolError, oip_format
from server.web.errors import BadHeader, WebError
from server.web.front import Front
from server.web.hot_request import HotRequest, Lane
from server.web.request_headers import JSON_LENGTH, content_length, timeout_s

__all__ = ["headers_of_interest", "hot_request"]

#: Headers that decide whether a request is hot, or that a prediction reads.
_LOOKED_AT = frozenset(
    {
        JSON_LENGTH,
        b"connection",
        b"content-encoding",
        b"content-length",
        b"expect",
        b"host",
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
#: Those of a request that has nothing of its own but its body.
_PLAIN = frozenset({b"content-length", b"connection", b"host", b"x-request-timeout-ms", JSON_LENGTH})


def hot_request(
    lane: Lane,
    front: Front,
    *,
    url: bytes,
    headers: Sequence[tuple[bytes, bytes]],
    keep_alive: bool,
    received_s: float,
    peer: tuple[str, int] | None,
) -> HotRequest | None:
    """Return the request that a head of HTTP/1.1 begins, a POST, if it is a hot one."""
    path = front.hot_path(url)
    found = None if path is None else headers_of_interest(headers)
    if path is None or found is None or b"host" not in found:
        return None
    try:
        length = content_length(found.get(b"content-length"))
        timeout = found.get(b"x-request-timeout-ms")
        patience_s = None if timeout is None else timeout_s(timeout)
        wire = oip_format(found.get(JSON_LENGTH)) if path.is_oip else TFS_JSON
    except (BadHeader, ProtocolError):
        return None  # the cold way says what is wrong with it
    if length is None or length > front.max_body_bytes:
        return None
    rate = None
    if front.gate.guards_predictions:
        try:
            rate = front.gate.predict(headers, peer, path.model)
        except WebError:
            return None  # so does it say why it is refused
    request_id = found.get(b"x-request-id")
    hot = HotRequest(
        lane,
        path,
        None if request_id is None else front.ids.of(request_id),
        patience_s,
        explain=found.get(b"x-rowwise-explain") == b"1",
        wire=wire,
        caller=None if peer is None else peer[0],
        received_s=received_s,
    )
    hot.rate = rate
    hot.n_body = length
    hot.traceparent = found.get(b"traceparent")
    hot.keep_alive = keep_alive or b"connection" not in found
    hot.is_plain = found.keys() <= _PLAIN
    if front.has_access_log:
        hot.started_s = time.perf_counter()
    return hot


def headers_of_interest(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes] | None:
    """Return the headers that a prediction reads; None if one of them makes the request unusual."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _LOOKED_AT:
            if name in _UNUSUAL or name in found:
                return None
            found[name] = value
    return found

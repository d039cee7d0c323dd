"""Answers as the bytes that leave: status line, headers and body in one piece, for one write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from server.protocol import Body, Headers, LongBody
from server.web.status import JSON, Reply

__all__ = ["GoodHeads", "reply_bytes", "write_reply"]

_JSON_HEAD = b"content-type: application/json\r\ncontent-length: "


def reply_bytes(
    reply: Reply, default_headers: Sequence[tuple[bytes, bytes]], *, request_id: str, is_last: bool
) -> bytes:
    """Return any answer; ``is_last`` closes its connection."""
    head = _head(reply, default_headers, request_id=request_id, is_last=is_last)
    head.append(bytes(reply.body))
    return b"".join(head)


def write_reply(
    transport: asyncio.WriteTransport,
    reply: Reply,
    default_headers: Sequence[tuple[bytes, bytes]],
    *,
    request_id: str,
    is_last: bool,
) -> None:
    """Write any answer in one call, and without copying what is long."""
    if isinstance(reply.body, LongBody):
        head = _head(reply, default_headers, request_id=request_id, is_last=is_last)
        transport.writelines((b"".join(head), *reply.body.parts))
    else:
        transport.write(reply_bytes(reply, default_headers, request_id=request_id, is_last=is_last))


def _head(
    reply: Reply, default_headers: Sequence[tuple[bytes, bytes]], *, request_id: str, is_last: bool
) -> list[bytes]:
    head = [STATUS_LINE[reply.status]]
    for name, value in default_headers:
        head += (name, b": ", value, b"\r\n")
    if len(reply.headers) == 1 and reply.headers[0] is JSON:
        head.append(_JSON_HEAD)
    else:
        for name, value in reply.headers:
            head += (name, b": ", value, b"\r\n")
        head.append(b"content-length: ")
    head += (b"%d\r\nx-request-id: " % len(reply.body), request_id.encode("ascii"))
    head.append(b"\r\nconnection: close\r\n\r\n" if is_last else b"\r\n\r\n")
    return head


class GoodHeads:
    """How good answers begin, by the headers that say what they are: made again when uvicorn has renewed its own."""

    __slots__ = ("_default_headers", "_heads")

    def __init__(self) -> None:
        #: uvicorn's are a new list each second.
        self._default_headers: object = None
        self._heads: dict[Headers, bytes] = {}

    def answer(
        self, default_headers: Sequence[tuple[bytes, bytes]], headers: Headers, request_id: bytes, body: Body
    ) -> bytes:
        """Return a good answer that leaves its connection open."""
        if default_headers is not self._default_headers:
            self._default_headers = default_headers
            self._heads.clear()
        head = self._heads.get(headers)
        if head is None:
            lines = b"".join([b"%b: %b\r\n" % header for header in (*default_headers, *headers)])
            head = self._heads[headers] = STATUS_LINE[200] + lines + b"content-length: "
        return b"%b%d\r\nx-request-id: %b\r\n\r\n%b" % (head, len(body), request_id, bytes(body))

"""How calls end that are not answered, and the frame with which any call ends."""

from __future__ import annotations

from server.errors import RowwiseError
from server.web.http2.frames import END_HEADERS, END_STREAM, Kind, frame
from server.web.rpc.codes import Code, code_of, retry_metadata
from server.web.rpc.framing import ANSWER_HEAD, trailers

__all__ = ["InternalFailure", "how_it_ends", "internal_sentence", "last_frame"]

_Metadata = tuple[tuple[bytes, bytes], ...]


class InternalFailure(Exception):
    """An error of ours, which is logged already."""


def internal_sentence(request_id: str) -> str:
    """Return what a caller is told of an error of ours."""
    return f"internal error: the server's log says more under request id {request_id}"


def how_it_ends(error: Exception, request_id: str) -> tuple[Code, str, _Metadata]:
    """Return status, message and metadata of an error."""
    if isinstance(error, RowwiseError):
        return code_of(error), str(error), retry_metadata(error)
    return Code.INTERNAL, internal_sentence(request_id), ()


def last_frame(stream_id: int, code: Code, sentence: str, more: _Metadata, *, request_id: str, is_all: bool) -> bytes:
    """Return the frame that ends an answer; ``is_all``: it begins it, too."""
    block = trailers(code, sentence, (*more, (b"x-request-id", request_id.encode("ascii"))))
    return frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream_id, ANSWER_HEAD + block if is_all else block)

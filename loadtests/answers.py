"""The client's half of HTTP/1.1, as little as a load driver needs: where does an answer end, and what is in it?

Nearly every answer has a Content-Length: that is seen with one search, and what is too long to arrive at once is
collected up to it. Whatever else HTTP allows (a head in pieces, chunks, no length) goes through a real parser, slower
and as right.
"""

from __future__ import annotations

import re

import httptools

__all__ = ["AnswerError", "AnswerReader"]

#: The usual spellings; others take the slower way.
_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?(\d+)\r\n")
_OK = b"HTTP/1.1 200"


class AnswerError(Exception):
    """The bytes are no HTTP answer."""


class AnswerReader:
    """Turns the bytes of one connection into answers, one at a time: requests are never pipelined."""

    __slots__ = ("_body", "_complete", "_n_missing", "_parser", "_status")

    def __init__(self) -> None:
        self._parser: httptools.HttpResponseParser | None = None
        self._body: list[bytes] = []
        self._complete = False
        #: Bytes of a body that are still to come, where its length was seen; 0: a parser has the answer, or nobody.
        self._n_missing = 0
        self._status = 0

    def feed(self, data: bytes) -> tuple[int, bytes] | None:
        """Take what was received; return (status, body) once the answer is whole. Errors: AnswerError."""
        if self._n_missing:
            return self._collect(data)
        if self._parser is None:
            head_end = data.find(b"\r\n\r\n")
            found = _LENGTH.search(data, 0, head_end + 2) if head_end > 0 else None
            if found is not None and data.startswith(b"HTTP/1.1 "):
                n_missing = head_end + 4 + int(found[1]) - len(data)
                status = 200 if data.startswith(_OK) else int(data[9:12])
                if n_missing == 0:
                    return status, data[head_end + 4 :]
                if n_missing > 0:
                    self._n_missing, self._status, self._body = n_missing, status, [data[head_end + 4 :]]
                    return None
            self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise AnswerError(f"no HTTP answer: {data[:80]!r} ({error})") from error
        if not self._complete:
            return None
        answer = self._parser.get_status_code(), b"".join(self._body)
        self._parser, self._body, self._complete = None, [], False
        return answer

    def _collect(self, data: bytes) -> tuple[int, bytes] | None:
        if len(data) > self._n_missing:
            raise AnswerError(f"{len(data) - self._n_missing} bytes follow an answer of the length that it said")
        self._body.append(data)
        self._n_missing -= len(data)
        if self._n_missing:
            return None
        body, self._body = b"".join(self._body), []
        return self._status, body

    def on_body(self, data: bytes) -> None:
        """Parser callback."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Parser callback."""
        self._complete = True

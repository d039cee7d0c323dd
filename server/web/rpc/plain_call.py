"""A prediction as nearly all callers send it: headers that are known, then one frame with its only message.

It is gathered: those of one tick, over all connections, are read, admitted and answered together with each other
(``server.web.gathering``). As soon as anything about a call is unusual (a message in several frames, compressed, too
large, none), it becomes an ``Exchange``, which does all that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from server.errors import RowwiseError
from server.protocol import TFS_JSON, Encoded
from server.web.comeback import Comeback
from server.web.front import Front
from server.web.gathered_request import GatheredRequest
from server.web.http2.connection import Connection
from server.web.http2.frames import END_HEADERS, END_STREAM, Kind, frame
from server.web.http2.stream import Stream
from server.web.paths import VerbPath
from server.web.rpc.call import Method
from server.web.rpc.codes import Code
from server.web.rpc.endings import InternalFailure, how_it_ends, last_frame
from server.web.rpc.exchange import Exchange
from server.web.rpc.framing import ANSWER_HEAD, MESSAGE_HEAD_BYTES, message, trailers
from server.web.rpc.plain_heads import PlainHead, Refused
from server.web.rpc.predictions import is_late
from server.web.status import CLIENT_GONE, Reply

__all__ = ["MakeExchange", "PlainCall"]

#: Until its message says whom it asks.
_NOBODY = VerbPath("", None, None, "predict")
#: Lengths of answers and of request ids for which what stands around them is kept. Past it, all are forgotten.
_MAX_TEMPLATES = 1_024
_TEMPLATES: dict[tuple[int, int], bytes] = {}


#: Makes the handler of a call about which something is unusual; the last is when its headers came.
MakeExchange = Callable[[Connection, Stream, Mapping[bytes, bytes], Method, float | None], Exchange]


class PlainCall(GatheredRequest):
    """A handler of a stream, until it turns out to be unusual."""

    __slots__ = ("_begun_s", "_comeback", "_connection", "_exchange", "_front", "_head", "_is_whole", "_stream")

    def __init__(
        self,
        front: Front,
        connection: Connection,
        stream: Stream,
        head: PlainHead,
        exchange: MakeExchange,
        comeback: Comeback,
    ) -> None:
        super().__init__(_NOBODY, None, head.timeout_s, wire=TFS_JSON, caller=head.caller)
        self._front = front
        self._connection = connection
        self._stream = stream
        self._head = head
        self._exchange = exchange
        self._comeback = comeback
        #: When its headers came.
        self._begun_s = connection.heard_s
        #: True: its message has come.
        self._is_whole = False

    # What the connection calls.

    def received(self, data: bytes) -> None:
        """Take its message."""
        n_bytes = len(data) - MESSAGE_HEAD_BYTES
        front = self._front
        if (
            self._is_whole
            or not self._stream.has_ended
            or n_bytes < 0
            or data[0]
            or int.from_bytes(data[1:MESSAGE_HEAD_BYTES], "big") != n_bytes
            or n_bytes > front.max_body_bytes
        ):
            self._as_exchange().received(data)
            return
        body = data[MESSAGE_HEAD_BYTES:]
        try:
            self.path, self.wire = self._head.messages.target(body)
            if not front.gathers(self.path):
                raise Refused
            self.rate = self._head.rate(self.path.model)
        except (RowwiseError, Refused):
            self._as_exchange().received(data)
            return
        self._is_whole = True
        self.body.append(body)
        if self._begun_s != self._connection.heard_s:
            self.received_s = self._begun_s
        front.gathering.add(self)

    def ended(self) -> None:
        """Note that no more comes."""
        if not self._is_whole:
            self._as_exchange().ended()

    def was_reset(self) -> None:
        """Take the call back."""
        if self._is_whole and not self.is_answered and self.reply is None:
            self.abandon(504 if is_late(self.timeout_s, self._begun_s) else CLIENT_GONE)

    def tick(self) -> None:
        """Let a message that does not come be given up."""
        if not self._is_whole:
            self._as_exchange().tick()

    def _as_exchange(self) -> Exchange:
        head, stream = self._head, self._stream
        exchange = self._exchange(self._connection, stream, head.headers, head.method, self._begun_s)
        stream.handler = exchange
        exchange.begin()
        return exchange

    # What gathering calls.

    @property
    def comeback(self) -> Comeback:
        """Who is told of its answer, and of the next call of its connection."""
        return self._comeback

    def new_request_id(self) -> str:
        """Make an id for a call that brought none."""
        return self._front.ids.of(None)

    def answered(self, encoded: Encoded) -> None:
        """Send an answer."""
        self.is_answered = True
        body = bytes(encoded[0])
        given = self.own_request_id
        request_id = self._front.ids.new() if given is None else given.encode("ascii")
        key = len(body), len(request_id)
        template = _TEMPLATES.get(key)
        if template is None:
            if len(_TEMPLATES) >= _MAX_TEMPLATES:
                _TEMPLATES.clear()
            template = _TEMPLATES[key] = _template(*key)
        stream = self._stream
        stream_id = stream.id.to_bytes(4, "big")
        frames = template % (stream_id, stream_id, body, stream_id, request_id)
        if not self._connection.send_at_once(stream, MESSAGE_HEAD_BYTES + len(body), frames):
            head = frame(Kind.HEADERS, END_HEADERS, stream.id, ANSWER_HEAD)
            last = last_frame(stream.id, Code.OK, "", (), request_id=request_id.decode("ascii"), is_all=False)
            self._connection.send(stream, head, message(body), last)

    def replied(self, reply: Reply) -> None:
        """Send a reply: an answer, or why there is none."""
        super().replied(reply)
        if reply.status == 200:
            self.answered((reply.body, ()))
            return
        error = InternalFailure() if reply.error is None else reply.error
        code, sentence, trailing = how_it_ends(error, self.request_id)
        last = last_frame(self._stream.id, code, sentence, trailing, request_id=self.request_id, is_all=True)
        self._connection.send(self._stream, b"", None, last)


def _template(n_body: int, n_request_id: int) -> bytes:
    """Return the frames of an answer, with places for its stream (three times), its body and its request's id.

    Nothing of it changes a table of the other side's, so it is the same for everybody.
    """
    first = frame(Kind.HEADERS, END_HEADERS, 0, ANSWER_HEAD)
    data = frame(Kind.DATA, 0, 0, message(bytes(n_body)))[: -n_body or None]
    id_ = bytes(n_request_id)
    block = trailers(Code.OK, "", [(b"x-request-id", b"-" * n_request_id)])
    last = frame(Kind.HEADERS, END_HEADERS | END_STREAM, 0, block)[: -len(id_) or None]
    stream_at, place = slice(5, 9), b"%b"
    pieces = []
    for piece in (first, data, last):
        pieces += [
            piece[: stream_at.start].replace(b"%", b"%%"),
            place,
            piece[stream_at.stop :].replace(b"%", b"%%"),
        ]
    return b"".join([*pieces[:6], place, *pieces[6:], place])

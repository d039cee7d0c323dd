"""One call on one stream of HTTP/2: its messages to a method of a service, the method's answer back.

A method that answers one message without a task is called as soon as the message is there; the others run in a task.
What is announced as too large is refused before it comes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping

from server.batching import DeadlineExceeded, Draining
from server.errors import RowwiseError
from server.protocol import MalformedRequest
from server.web.access_log import log_access
from server.web.errors import BodyTimeout, BodyTooLarge
from server.web.front import Front
from server.web.http2.connection import Connection
from server.web.http2.frames import END_HEADERS, Kind, frame
from server.web.http2.stream import Stream
from server.web.rpc.call import Call, Method
from server.web.rpc.codes import Code
from server.web.rpc.endings import InternalFailure, how_it_ends, last_frame
from server.web.rpc.framing import ANSWER_HEAD, MESSAGE_HEAD_BYTES, deadline_s, message, message_head, unpacked
from server.web.scopes import PREDICT

__all__ = ["Exchange"]

#: Messages of a stream that wait to be taken while the next large one comes.
_MAX_WAITING = 2
_LARGE_BYTES = 2**18

_LOG = logging.getLogger("rowwise.web")


class Exchange:
    """A handler of a stream. Ends once: by an answer, an error, or by being reset."""

    __slots__ = (
        "_answered",
        "_buffer",
        "_call",
        "_connection",
        "_front",
        "_has_begun",
        "_has_ended",
        "_headers",
        "_incoming",
        "_leaving",
        "_method",
        "_n_credited",
        "_n_held",
        "_path",
        "_refusal",
        "_stream",
        "_take_back",
        "_task",
    )

    def __init__(
        self,
        front: Front,
        leaving: asyncio.Event,
        connection: Connection,
        stream: Stream,
        headers: Mapping[bytes, bytes],
        method: Method,
        received_s: float | None = None,
    ) -> None:
        self._front = front
        self._connection = connection
        self._stream = stream
        self._headers = headers
        self._method = method
        self._leaving = leaving
        self._path = headers.get(b":path", b"")
        #: Bytes of messages that are not complete, or not yet looked at.
        self._buffer = bytearray()
        #: How many of them count for what all callers may make the server hold.
        self._n_held = 0
        #: How many of them were given back to the stream's window already.
        self._n_credited = 0
        #: True: the method has its message, or runs.
        self._has_begun = False
        self._has_ended = False
        #: True: the answer's headers were sent.
        self._answered = False
        self._take_back: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None
        #: Why a stream is to be refused, once its first bytes have come or a deadline has passed: gRPC's asyncio client
        #: takes an answer that comes while it writes for an error of its own.
        self._refusal: RowwiseError | None = None
        #: Messages of a stream, with the bytes that they took; None: there are no more.
        self._incoming: asyncio.Queue[tuple[bytes, int] | None] | None = None
        self._call = Call(
            headers=headers,
            peer=connection.peer,
            request_id=front.ids.of(headers.get(b"x-request-id")),
            timeout_s=None,
            received_s=time.monotonic() if received_s is None else received_s,
        )

    def begin(self) -> None:
        """Look at the headers."""
        try:
            self._call.timeout_s = deadline_s(self._headers.get(b"grpc-timeout"))
            self._call.grant = self._front.gate.admit(self._method.rule, self._headers.items(), self._call.peer)
        except RowwiseError as error:
            if self._method.rule is PREDICT:
                self._front.predictor.refused(error)
            if self._method.stream is None:
                self._refuse(error)
            else:
                self._refusal = error
            return
        if self._method.stream is not None:
            self._incoming = asyncio.Queue()
            self._has_begun = True
            self._task = asyncio.create_task(self._run_stream())

    # What the connection calls.

    def received(self, data: bytes) -> None:
        """Take bytes of messages."""
        if self._has_ended:
            return
        if self._refusal is not None:
            self._refuse(self._refusal)
            return
        try:
            if self._incoming is None:
                self._take(data)
            else:
                self._take_of_stream(data)
        except RowwiseError as error:
            self._front.predictor.refused(error)
            self._refuse(error)

    def ended(self) -> None:
        """Note that no more comes."""
        if self._has_ended:
            return
        if self._refusal is not None:
            self._refuse(self._refusal)
        elif self._incoming is not None:
            self._incoming.put_nowait(None)
        elif not self._has_begun:
            error = MalformedRequest("the call ended before its message was complete")
            self._front.predictor.refused(error)
            self._refuse(error)

    def was_reset(self) -> None:
        """Take the call back."""
        if self._has_ended:
            return
        self._end("CANCELLED")
        if self._take_back is not None:
            self._take_back()
        if self._task is not None:
            self._task.cancel()

    def tick(self) -> None:
        """Give up a message that does not come, and what is not a prediction when its deadline has passed."""
        if self._has_ended:
            return
        call = self._call
        if not self._has_begun:
            timeout_s = self._front.body_timeout_s if call.timeout_s is None else call.timeout_s
            if time.monotonic() - call.received_s > timeout_s:
                error = BodyTimeout(timeout_s)
                self._front.predictor.refused(error)
                self._refuse(error)
        elif self._task is not None and (left_s := call.left_s()) is not None and left_s <= 0:
            self._refuse(DeadlineExceeded("the deadline has passed"))

    # Messages.

    def _take(self, data: bytes) -> None:
        """Take bytes of the only message."""
        if self._has_begun:
            raise MalformedRequest("the call has more than one message")
        whole: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            whole = self._buffer
        size = len(whole)
        if size >= MESSAGE_HEAD_BYTES:
            is_packed, n_bytes = message_head(whole)
            self._check_size(n_bytes)
            if size > MESSAGE_HEAD_BYTES + n_bytes:
                raise MalformedRequest("the call has more than one message")
            if size == MESSAGE_HEAD_BYTES + n_bytes:
                body = bytes(memoryview(whole)[MESSAGE_HEAD_BYTES:])
                self._buffer = bytearray()
                self._hold(0)
                self._has_begun = True
                self._start(self._unpacked(body) if is_packed else body)
                return
        if whole is data:
            self._buffer += data
        self._hold(size)
        self._connection.credit(self._stream, len(data))

    def _take_of_stream(self, data: bytes) -> None:
        """Take bytes of a stream's messages."""
        assert self._incoming is not None
        self._buffer += data
        while len(self._buffer) >= MESSAGE_HEAD_BYTES:
            is_packed, n_bytes = message_head(self._buffer)
            self._check_size(n_bytes)
            whole = MESSAGE_HEAD_BYTES + n_bytes
            if len(self._buffer) < whole:
                break
            body = bytes(memoryview(self._buffer)[MESSAGE_HEAD_BYTES:whole])
            del self._buffer[:whole]
            self._incoming.put_nowait((self._unpacked(body) if is_packed else body, whole - self._n_credited))
            self._n_credited = 0
        self._hold(len(self._buffer))
        self._make_room()

    def _make_room(self) -> None:
        """Let the rest of a message come that is larger than a stream's window, unless others wait to be taken."""
        assert self._incoming is not None
        if self._incoming.qsize() < _MAX_WAITING and len(self._buffer) > _LARGE_BYTES:
            self._connection.credit(self._stream, len(self._buffer) - self._n_credited)
            self._n_credited = len(self._buffer)

    def _check_size(self, n_bytes: int) -> None:
        limit = self._front.max_body_bytes
        if n_bytes > limit:
            raise BodyTooLarge(f"the message of {n_bytes} bytes", limit_bytes=limit, setting="max_body_bytes")

    def _unpacked(self, body: bytes) -> bytes:
        encoding = self._headers.get(b"grpc-encoding", b"identity")
        return unpacked(body, encoding, limit_bytes=self._front.max_body_bytes)

    def _hold(self, n_bytes: int) -> None:
        """Hold so many bytes of messages that are not complete. Errors: BodiesWaiting."""
        if n_bytes > self._n_held:
            self._front.body_budget.take(n_bytes - self._n_held)
        elif n_bytes < self._n_held:
            self._front.body_budget.give_back(self._n_held - n_bytes)
        self._n_held = n_bytes

    async def _messages(self) -> AsyncIterator[bytes]:
        """Yield a stream's messages until it ends or the server stops."""
        assert self._incoming is not None
        leaving = asyncio.ensure_future(self._leaving.wait())
        taking: asyncio.Future[tuple[bytes, int] | None] | None = None
        try:
            while True:
                taking = asyncio.ensure_future(self._incoming.get())
                await asyncio.wait((taking, leaving), return_when=asyncio.FIRST_COMPLETED)
                if not taking.done():
                    return
                taken = taking.result()
                if taken is None:
                    return
                body, n_bytes = taken
                self._connection.credit(self._stream, n_bytes)
                self._make_room()
                yield body
        finally:
            leaving.cancel()
            if taking is not None:
                taking.cancel()  # where the call is taken back: else it would wait for ever

    # The method.

    def _start(self, body: bytes) -> None:
        """Call a method that takes one message."""
        if self._method.quick is not None:
            take_back = self._method.quick(self._call, body, self._on_end)
            if not self._has_ended:
                self._take_back = take_back
        else:
            self._task = asyncio.create_task(self._run_unary(body))

    def _on_end(self, answer: bytes | None, error: Exception | None) -> None:
        if answer is not None:
            self._succeed(answer)
        else:
            assert error is not None
            self._refuse(error)

    async def _run_unary(self, body: bytes) -> None:
        assert self._method.unary is not None
        try:
            answer = await self._method.unary(self._call, body)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets one answer
            self._refuse(error)
        else:
            self._succeed(answer)

    async def _run_stream(self) -> None:
        assert self._method.stream is not None
        try:
            async for answer in self._method.stream(self._call, self._messages()):
                if self._has_ended:
                    return
                self._send(answer, b"")
                await self._connection.has_room(self._stream)
            if self._leaving.is_set():
                raise Draining
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told
            self._refuse(error)
        else:
            if not self._has_ended:
                self._end("OK")
                self._connection.send(self._stream, b"", None, self._last(Code.OK, "", self._call.trailing))

    # Answers.

    def _succeed(self, answer: bytes) -> None:
        if not self._has_ended:
            self._end("OK")
            self._send(answer, self._last(Code.OK, "", self._call.trailing))

    def _send(self, answer: bytes, last: bytes) -> None:
        head = b""
        if not self._answered:
            self._answered = True
            head = frame(Kind.HEADERS, END_HEADERS, self._stream.id, ANSWER_HEAD)
        self._connection.send(self._stream, head, message(answer), last)

    def _refuse(self, error: Exception) -> None:
        """End with an error."""
        if self._has_ended:
            return
        call = self._call
        code, sentence, trailing = how_it_ends(error, call.request_id)
        if isinstance(error, RowwiseError):
            self._front.gate.refused(
                error, what=self._path.decode("latin-1"), host=call.host, request_id=call.request_id, model=call.model
            )
        elif not isinstance(error, InternalFailure):
            request_id = call.request_id
            _LOG.error(
                "request %s: %r failed", request_id, self._path, exc_info=error, extra={"request_id": request_id}
            )
        self._end(code.name)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()  # it waits for messages that nobody takes any more
        self._connection.send(self._stream, b"", None, self._last(code, sentence, trailing))

    def _last(self, code: Code, sentence: str, more: tuple[tuple[bytes, bytes], ...]) -> bytes:
        """Return the frame that ends the answer, with the headers that begin it where none were sent."""
        return last_frame(
            self._stream.id,
            code,
            sentence,
            more,
            request_id=self._call.request_id,
            is_all=not self._answered and code is not Code.OK,
        )

    def _end(self, status: str) -> None:
        self._has_ended = True
        self._hold(0)
        self._buffer = bytearray()
        if self._front.has_access_log:
            duration_ms = (time.monotonic() - self._call.received_s) * 1e3
            path = self._path.decode("latin-1")
            log_access("GRPC", path, status, duration_ms, self._call.request_id)

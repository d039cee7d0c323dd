"""One connection of HTTP/2: frames in, frames out. What its streams are about is their handlers' business.

Rules:

1. What breaks the protocol for all streams ends the connection with GOAWAY and a reason; what concerns one, that one.
2. A stream may send as many bytes as its handler has room for: ``credit`` gives room. Bytes of streams that are over
   count for the connection alone, which always has room.
3. What is sent waits in its stream for the other side's room, and all of it while the transport is full.
4. Frames that cost us more than them (resets, pings, each setting, windows, empty ones, streams that are refused) are
   bought from an allowance that fills up again with time, and with the data that we send; who has none left is sent
   away. A block of headers has a bounded size, in any number of frames.
5. A connection on which nothing came for a while is asked whether it is there, and is closed if it does not say so.
6. One that takes nothing of what we have for it is cut off: whether the transport is full, or it gives no room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from server.web.http2.allowance import Allowance
from server.web.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD_BYTES,
    HAS_PRIORITY,
    MAX_FRAME_BYTES,
    MAX_WINDOW,
    PADDED,
    PREFACE,
    ErrorCode,
    Kind,
    Setting,
    frame,
    goaway,
    read_settings,
    reset,
    settings,
    unpack_head,
    window_update,
)
from server.web.http2.header_blocks import BadHeaderBlock, HeaderReader, Headers
from server.web.http2.padding import unpadded
from server.web.http2.sender import DEFAULT_WINDOW, Sender
from server.web.http2.stream import OVER, STREAM_WINDOW, Handler, ProtocolBroken, Stream
from server.web.http2.taking import Taking

__all__ = ["Connection"]

#: Streams that a connection may have at once.
_MAX_STREAMS = 1_024
#: Bytes that a connection may send ahead of our reading.
_CONNECTION_WINDOW = 2**24
#: Bytes of a block of headers, and of what it says.
_MAX_BLOCK_BYTES = 32_768
#: Seconds without a byte after which is asked, and after which it is closed.
_QUIET_S = 60.0
_GONE_S = 80.0
_TICK_S = 1.0
#: What nearly all frames are, as numbers: an enumeration's members are looked up each time.
_DATA, _HEADERS = int(Kind.DATA), int(Kind.HEADERS)
#: Flags of frames with more than a block of headers.
_AROUND_BLOCK = PADDED | HAS_PRIORITY
#: Seconds between two looks whether a stream's answers have left.
_ROOM_LOOK_S = 0.005


class Connection(asyncio.Protocol):
    """A connection. ``begin`` makes the handler of a stream from its headers, or raises nothing at all."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        begin: Callable[[Connection, Stream, Headers], Handler],
        *,
        write_timeout_s: float = 30.0,
        on_open: Callable[[Connection], None] = lambda _connection: None,
        on_close: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._begin = begin
        self._on_open = on_open
        self._on_close = on_close
        self._transport: asyncio.Transport
        self._sender: Sender
        #: Host and port of the other side.
        self.peer: tuple[str, int] | None = None
        self._buffer, self._has_preface = b"", False
        self._headers = HeaderReader(max_bytes=_MAX_BLOCK_BYTES)
        #: Those that are not over on our side.
        self.streams: dict[int, Stream] = {}
        self._last_id = 0
        #: A block that comes in several frames: stream, flags, parts.
        self._block: tuple[int, int, bytearray] | None = None
        self._unsaid, self._is_leaving = 0, False
        #: When something came last, by the loop's clock.
        self.heard_s = loop.time()
        self._allowance = Allowance(self.heard_s)
        self._was_asked = False
        self._write_timeout_s = write_timeout_s
        self._taking = Taking()
        self._timer: asyncio.TimerHandle | None = None

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what we allow."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, and no subclass
        self._sender = Sender(self._transport.write, self.streams, on_over=self._over)
        peer = transport.get_extra_info("peername")
        self.peer = peer[:2] if isinstance(peer, tuple) else None
        self._transport.write(
            settings(
                {
                    Setting.MAX_CONCURRENT_STREAMS: _MAX_STREAMS,
                    Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                    Setting.MAX_HEADER_LIST_SIZE: _MAX_BLOCK_BYTES,
                }
            )
            + window_update(0, _CONNECTION_WINDOW - DEFAULT_WINDOW)
        )
        self._timer = self._loop.call_later(_TICK_S, self._tick)
        self._on_open(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """Tell every handler."""
        if self._timer is not None:
            self._timer.cancel()
        streams = list(self.streams.values())
        self.streams.clear()
        for stream in streams:
            stream.handler.was_reset()
        self._on_close(self)

    def pause_writing(self) -> None:
        """Hold back what is to be sent."""
        self._sender.is_full = True

    def resume_writing(self) -> None:
        """Send what was held back."""
        self._sender.is_full = False
        self._sender.pump_all()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        self.heard_s = self._loop.time()
        self._was_asked = False
        buffer = self._buffer + data if self._buffer else data
        try:
            self._buffer = buffer[self._read(buffer) :]
        except BadHeaderBlock as error:
            self._break(ErrorCode.COMPRESSION_ERROR, str(error))
        except ProtocolBroken as error:
            self._break(error.code, str(error))

    # What handlers call.

    def send(self, stream: Stream, frames: bytes, data: bytes | None, last: bytes) -> None:
        """Send frames of headers, bytes of data and once more frames, if the stream is not over.

        ``last`` has the frame that ends the stream; where it is empty, more will be sent.
        """
        if self.streams.get(stream.id) is stream and not self._transport.is_closing():
            self._sender.send(stream, frames, data, last)

    def send_at_once(self, stream: Stream, n_bytes: int, frames: bytes) -> bool:
        """Send all of an answer of ``n_bytes`` bytes of data, framed, if there is room for it now; or return False."""
        if (
            self.streams.get(stream.id) is not stream
            or self._transport.is_closing()
            or not self._sender.takes(stream, n_bytes)
        ):
            return False
        self._transport.write(frames)
        del self.streams[stream.id]
        stream.handler = OVER  # each holds the other, and would wait for the garbage collector
        if not stream.has_ended:
            self._transport.write(reset(stream.id, ErrorCode.NO_ERROR))
        if self._is_leaving:
            self._close_if_done()
        return True

    async def has_room(self, stream: Stream) -> None:
        """Wait until what was sent of a stream is gone, or the stream is."""
        while stream.pending and self.streams.get(stream.id) is stream:  # noqa: ASYNC110 - rare, and over soon
            await asyncio.sleep(_ROOM_LOOK_S)

    def credit(self, stream: Stream, n_bytes: int) -> None:
        """Let a stream send so many bytes more."""
        if stream.has_ended:
            return
        stream.spent += n_bytes
        if stream.spent >= STREAM_WINDOW // 4:
            stream.receive_window += stream.spent
            self._transport.write(window_update(stream.id, stream.spent))
            stream.spent = 0

    def leave(self) -> None:
        """Take no new streams, and close when those that are there are over."""
        if not self._is_leaving:
            self._is_leaving = True
            self._transport.write(goaway(self._last_id, ErrorCode.NO_ERROR))
            self._close_if_done()

    def close(self) -> None:
        """Close at once."""
        self._transport.close()

    # Reading.

    def _read(self, buffer: bytes) -> int:
        """Handle all whole frames and return where the rest begins."""
        at, end = 0, len(buffer)
        if not self._has_preface:
            if not PREFACE.startswith(buffer[: len(PREFACE)]):
                raise ProtocolBroken(ErrorCode.PROTOCOL_ERROR, "this port speaks HTTP/2 (gRPC) only")
            if end < len(PREFACE):
                return 0
            at = len(PREFACE)
            self._has_preface = True
        while end - at >= FRAME_HEAD_BYTES:
            high, low, kind, flags, stream_id = unpack_head(buffer, at)
            size = high << 8 | low
            if size > MAX_FRAME_BYTES:
                raise ProtocolBroken(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            start = at + FRAME_HEAD_BYTES
            if end - start < size:
                break
            at = start + size
            if kind == _DATA and self._block is None:
                self._data(flags, stream_id & MAX_WINDOW, buffer[start:at])
            else:
                self._handle(kind, flags, stream_id & MAX_WINDOW, buffer[start:at])
        return at

    def _handle(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is not None and (kind != Kind.CONTINUATION or stream_id != self._block[0]):
            raise ProtocolBroken(ErrorCode.PROTOCOL_ERROR, "a block of headers was interrupted")
        if kind == _HEADERS:
            self._header_frame(flags, stream_id, payload)
        elif kind == Kind.CONTINUATION:
            self._continuation(flags, payload)
        elif kind == Kind.WINDOW_UPDATE:
            self._window(stream_id, payload)
        elif kind == Kind.RST_STREAM:
            self._allowance.spend()
            if len(payload) != 4 or not stream_id or stream_id > self._last_id:
                raise ProtocolBroken(ErrorCode.PROTOCOL_ERROR, "a reset of no stream")
            stream = self.streams.pop(stream_id, None)
            if stream is not None:
                stream.handler.was_reset()
                self._close_if_done()
        elif kind == Kind.SETTINGS:
            self._settings(flags, stream_id, payload)
        elif kind == Kind.PING:
            self._allowance.spend()
            if len(payload) != 8 or stream_id:
                raise ProtocolBroken(ErrorCode.FRAME_SIZE_ERROR, "a ping has eight bytes")
            if not flags & ACK:
                self._transport.write(frame(Kind.PING, ACK, 0, payload))
        elif kind == Kind.PUSH_PROMISE:
            raise ProtocolBroken(ErrorCode.PROTOCOL_ERROR, "clients don't push")
        else:
            self._allowance.spend()  # GOAWAY: it will close when it has its answers; others mean nothing here

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._unsaid += size
        if self._unsaid >= _CONNECTION_WINDOW // 2:
            self._transport.write(window_update(0, self._unsaid))
            self._unsaid = 0
        stream = self.streams.get(stream_id)
        if stream is None or stream.has_ended:
            self._allowance.spend()
            if not stream_id or stream_id > self._last_id or stream is not None:
                raise ProtocolBroken(ErrorCode.PROTOCOL_ERROR, "data of no stream")
            return  # Ours is over, theirs did not know.
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise ProtocolBroken(ErrorCode.FLOW_CONTROL_ERROR, "more data than there is room for")
        data = unpadded(payload) if flags & PADDED else payload
        if len(data) < size:
            self.credit(stream, size - len(data))
        stream.has_ended = bool(flags & END_STREAM)
        if data:
            stream.handler.received(data)
        elif not flags & END_STREAM:
            self._allowance.spend()
        if flags & END_STREAM:
            stream.handler.ended()

    def _header_frame(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & _AROUND_BLOCK:
            if flags & PADDED:
                payload = unpadded(payload)
            if flags & HAS_PRIORITY:
                payload = payload[5:]
        if not stream_id & 1:
            raise ProtocolBroken(ErrorCode.PROTOCOL_ERROR, "a client's streams have odd numbers")
        if flags & END_HEADERS:
            self._header_block(flags, stream_id, payload)
        else:
            self._block = (stream_id, flags, bytearray(payload))

    def _continuation(self, flags: int, payload: bytes) -> None:
        self._allowance.spend()
        if self._block is None:
            raise ProtocolBroken(ErrorCode.PROTOCOL_ERROR, "nothing is to be continued")
        stream_id, first_flags, block = self._block
        block += payload
        if len(block) > _MAX_BLOCK_BYTES:
            raise ProtocolBroken(
                ErrorCode.ENHANCE_YOUR_CALM, f"a block of headers of more than {_MAX_BLOCK_BYTES} bytes"
            )
        if flags & END_HEADERS:
            self._block = None
            self._header_block(first_flags, stream_id, bytes(block))

    def _header_block(self, flags: int, stream_id: int, block: bytes) -> None:
        headers = self._headers.read(block)
        known = self.streams.get(stream_id)
        if known is not None:  # what follows a stream's data, which gRPC's clients don't send
            if known.has_ended or not flags & END_STREAM:
                raise ProtocolBroken(ErrorCode.PROTOCOL_ERROR, "headers in the middle of a stream")
            known.has_ended = True
            known.handler.ended()
            return
        if stream_id <= self._last_id:
            self._allowance.spend()
            return  # Ours is over, theirs did not know.
        self._last_id = stream_id
        if self._is_leaving or len(self.streams) >= _MAX_STREAMS:
            self._allowance.spend()
            self._transport.write(reset(stream_id, ErrorCode.REFUSED_STREAM))
            return
        stream = self.streams[stream_id] = Stream(stream_id, send_window=self._sender.initial_window)
        stream.has_ended = bool(flags & END_STREAM)
        stream.handler = self._begin(self, stream, headers)
        if flags & END_STREAM and self.streams.get(stream_id) is stream:
            stream.handler.ended()

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._allowance.spend(1 + len(payload) // 6)
        if stream_id or len(payload) % 6 or (flags & ACK and payload):
            raise ProtocolBroken(ErrorCode.FRAME_SIZE_ERROR, "settings of a wrong size")
        if flags & ACK:
            return
        window = dict(read_settings(payload)).get(Setting.INITIAL_WINDOW_SIZE)
        if window is not None:
            self._allowance.spend(len(self.streams) // 32)  # each of them changes
            self._sender.change_initial_window(window)
        self._transport.write(frame(Kind.SETTINGS, ACK, 0))
        self._sender.pump_all()

    def _window(self, stream_id: int, payload: bytes) -> None:
        n_bytes = int.from_bytes(payload, "big") & MAX_WINDOW
        if len(payload) != 4 or not n_bytes:
            raise ProtocolBroken(ErrorCode.PROTOCOL_ERROR, "a window that grows by nothing")
        self._allowance.sent(self._sender.n_frames)
        self._allowance.spend()
        self._sender.make_room(stream_id, n_bytes)

    # Ending.

    def _over(self, stream: Stream) -> None:
        """Note that all of a stream's answer has been sent."""
        if self.streams.pop(stream.id, None) is None:
            return
        if not stream.has_ended:
            self._transport.write(reset(stream.id, ErrorCode.NO_ERROR))
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._is_leaving and not self.streams:
            self._transport.close()

    def _break(self, code: int, reason: str) -> None:
        """End the connection."""
        self._transport.write(goaway(self._last_id, code, reason))
        self._transport.close()
        self._buffer = b""

    def _tick(self) -> None:
        now_s = self._loop.time()
        self._allowance.refill(now_s)
        for stream in list(self.streams.values()):
            stream.handler.tick()
        waits = self._sender.is_full or any(stream.pending for stream in self.streams.values())
        is_stuck = self._taking.is_stuck(
            now_s, waits=waits, n_frames=self._sender.n_frames, patience_s=self._write_timeout_s
        )
        if now_s - self.heard_s > _GONE_S or is_stuck:
            self._transport.abort()
            return
        if now_s - self.heard_s > _QUIET_S and not self._was_asked:
            self._was_asked = True
            self._transport.write(frame(Kind.PING, 0, 0, bytes(8)))
        self._timer = self._loop.call_later(_TICK_S, self._tick)

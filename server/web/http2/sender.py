"""What a connection sends: as much of each stream as the other side has room for, the rest when it has.

Windows are counted for each stream and for the connection. Source: RFC 9113, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from server.web.http2.frames import MAX_FRAME_BYTES, MAX_WINDOW, ErrorCode, Kind, frame
from server.web.http2.stream import ProtocolBroken, Stream

__all__ = ["DEFAULT_WINDOW", "Sender"]

#: Of everybody who says nothing else.
DEFAULT_WINDOW = 65_535


class Sender:
    """The sending half. ``streams`` are those that are not over; ``on_over`` is told when all of one was sent."""

    __slots__ = ("_on_over", "_streams", "_window", "_write", "initial_window", "is_full", "n_frames")

    def __init__(
        self, write: Callable[[bytes], None], streams: Mapping[int, Stream], *, on_over: Callable[[Stream], None]
    ) -> None:
        self._write = write
        self._streams = streams
        self._on_over = on_over
        self._window = DEFAULT_WINDOW
        #: That of streams which are opened from now on.
        self.initial_window = DEFAULT_WINDOW
        #: True: the transport has enough to send.
        self.is_full = False
        #: Frames of data that were sent.
        self.n_frames = 0

    def send(self, stream: Stream, frames: bytes, data: bytes | None, last: bytes) -> None:
        """Send frames of headers, data, and frames that end the stream, empty where more will be sent."""
        if data is None:
            is_sent = not stream.pending and not self.is_full
        else:
            is_sent = self.takes(stream, len(data))
        if is_sent:
            # All of it goes at once, as most answers do.
            if data is not None:
                frames += frame(Kind.DATA, 0, stream.id, data)
            self._write(frames + last)
            if last:
                self._on_over(stream)
            return
        if frames:
            stream.pending.append(frames)
        if data:
            stream.pending.append(memoryview(data))
        if last:
            stream.pending += (last, b"")
        self._pump(stream)

    def takes(self, stream: Stream, n_bytes: int) -> bool:
        """Count one frame of so much data as sent, if there is room for it and none waits before it."""
        if (
            stream.pending
            or self.is_full
            or n_bytes > MAX_FRAME_BYTES
            or n_bytes > stream.send_window
            or n_bytes > self._window
        ):
            return False
        stream.send_window -= n_bytes
        self._window -= n_bytes
        self.n_frames += 1
        return True

    def make_room(self, stream_id: int, n_bytes: int) -> None:
        """Note that the other side has room for more; stream 0 is the connection. Errors: ProtocolBroken."""
        if not stream_id:
            self._window += n_bytes
            _check_window(self._window)
            self.pump_all()
        elif (stream := self._streams.get(stream_id)) is not None:
            stream.send_window += n_bytes
            _check_window(stream.send_window)
            self._pump(stream)

    def change_initial_window(self, n_bytes: int) -> None:
        """Let every stream have so much more, or less, than it has now. Errors: ProtocolBroken."""
        _check_window(n_bytes)
        change = n_bytes - self.initial_window
        self.initial_window = n_bytes
        for stream in self._streams.values():
            stream.send_window += change
            _check_window(stream.send_window)

    def pump_all(self) -> None:
        """Send of all streams what there is room for."""
        for stream in list(self._streams.values()):
            if stream.pending:
                self._pump(stream)

    def _pump(self, stream: Stream) -> None:
        pending = stream.pending
        while pending and not self.is_full:
            first = pending[0]
            if isinstance(first, bytes):
                pending.popleft()
                if not first:
                    self._on_over(stream)
                    return
                self._write(first)
                continue
            n_bytes = min(len(first), MAX_FRAME_BYTES, stream.send_window, self._window)
            if n_bytes <= 0:
                return
            self.n_frames += 1
            self._write(frame(Kind.DATA, 0, stream.id, bytes(first[:n_bytes])))
            stream.send_window -= n_bytes
            self._window -= n_bytes
            if n_bytes == len(first):
                pending.popleft()
            else:
                pending[0] = first[n_bytes:]


def _check_window(n_bytes: int) -> None:
    if n_bytes > MAX_WINDOW:
        raise ProtocolBroken(ErrorCode.FLOW_CONTROL_ERROR, "a window that is too large")

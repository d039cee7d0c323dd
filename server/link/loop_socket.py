"""A ZeroMQ socket on the event loop, without a thread and without a task.

A socket's descriptor tells only that something has changed (libzmq's documentation of ``ZMQ_FD``: it is edge-triggered,
and sending may take the edge), so whatever may have changed it is followed by a look at what there is to receive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import zmq

from server.link.frames import LARGE_BYTES, Buffer

__all__ = ["LoopSocket"]

_log = logging.getLogger(__name__)

#: Messages taken before others get their turn on the event loop.
_BURST = 64


class LoopSocket:
    """Sends at once and calls ``on_message`` with each message's frames. ``address`` is bound, or connected to.

    Nothing bounds what waits to be sent: that is what callers wait for, and admission bounds them.
    ``on_message`` may send, and may close the socket; what it raises is logged, and the next message is taken.
    """

    def __init__(
        self,
        kind: int,
        address: str,
        *,
        binds: bool,
        on_message: Callable[[list[Buffer]], None],
        context: zmq.Context[zmq.Socket[bytes]],
    ) -> None:
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._socket: zmq.Socket[bytes] = context.socket(kind)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.RECONNECT_IVL, 50)
        try:
            if binds:
                self._socket.bind(address)
            else:
                self._socket.connect(address)
        except BaseException:
            self._socket.close()
            raise
        self._fd = int(self._socket.get(zmq.FD))
        #: A sender's identity, where there is one, and small buffers cost less to copy than to keep in libzmq's memory.
        self._n_copied = 2 if kind == zmq.ROUTER else 1
        self._look_is_due = False
        self._loop.add_reader(self._fd, self._receive)
        self._look_soon()

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send one message. What it is made of must not change any more."""
        send, last = self._socket.send, len(frames) - 1
        for place, frame in enumerate(frames):
            flags = zmq.NOBLOCK if place == last else zmq.NOBLOCK | zmq.SNDMORE
            send(frame, flags, copy=len(frame) < LARGE_BYTES)
        self._look_soon()

    def close(self) -> None:
        """Close it; what was not sent is lost. Harmless when closed."""
        if not self._socket.closed:
            self._loop.remove_reader(self._fd)
            self._socket.close()

    def _look_soon(self) -> None:
        if not self._look_is_due:
            self._look_is_due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._look_is_due = False
        self._receive()

    def _receive(self) -> None:
        for _ in range(_BURST):
            if self._socket.closed:
                return
            try:
                frames = self._receive_message()
            except zmq.Again:
                return
            try:
                self._on_message(frames)
            except Exception:  # noqa: BLE001 - one message must not end the link
                _log.exception("a message on the link could not be taken")
        self._look_soon()

    def _receive_message(self) -> list[Buffer]:
        receive, get = self._socket.recv, self._socket.getsockopt
        frames: list[Buffer] = [receive(zmq.NOBLOCK)]
        while get(zmq.RCVMORE):
            if len(frames) < self._n_copied:
                frames.append(receive(zmq.NOBLOCK))
            else:
                frames.append(receive(zmq.NOBLOCK, copy=False).buffer)
        return frames

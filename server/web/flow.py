"""Back-pressure of one connection: nobody is read from further than he takes his answers."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

__all__ = ["Flow"]

#: What a caller must take of an answer that waits for him, bytes a second; slower ones only hold memory.
_LEAST_BYTES_PER_S = 1_024


class Flow(FlowControl):
    """uvicorn's flow control, where reading stops as well while what was written is not taken.

    Without that a caller who sends requests and reads no answers makes the server hold them all. One who takes next to
    nothing for ``stall_s`` seconds is cut off.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, *, stall_s: float) -> None:
        super().__init__(transport)
        self._loop = loop
        self._stall_s = stall_s
        #: True: somebody asked to stop reading, for reasons of his own.
        self._is_held = False
        self._n_unsent = 0
        self._timer: asyncio.TimerHandle | None = None

    def pause_reading(self) -> None:
        """Stop reading until ``resume_reading``."""
        self._is_held = True
        self._apply()

    def resume_reading(self) -> None:
        """Read, as soon as what was written is taken."""
        self._is_held = False
        self._apply()

    def pause_writing(self) -> None:
        """Note that the transport has enough to send."""
        super().pause_writing()
        self._apply()
        if self._timer is None:
            self._n_unsent = self._transport.get_write_buffer_size()
            self._timer = self._loop.call_later(self._stall_s, self._look)

    def resume_writing(self) -> None:
        """Note that the transport has sent most of it, or is gone."""
        super().resume_writing()
        self.stop()
        self._apply()

    def stop(self) -> None:
        """Look no more whether anything is taken."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _apply(self) -> None:
        is_stopped = self._is_held or self.write_paused
        if is_stopped != self.read_paused and not self._transport.is_closing():
            self.read_paused = is_stopped
            if is_stopped:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _look(self) -> None:
        self._timer = None
        before, self._n_unsent = self._n_unsent, self._transport.get_write_buffer_size()
        # More than before: answers came meanwhile. They are few, as nothing is read.
        if before - _LEAST_BYTES_PER_S * self._stall_s < self._n_unsent <= before:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(self._stall_s, self._look)

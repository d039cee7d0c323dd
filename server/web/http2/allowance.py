"""What frames cost that make us work and bring nothing: they are bought, and who has nothing left is sent away."""

from __future__ import annotations

from server.web.http2.frames import ErrorCode
from server.web.http2.stream import ProtocolBroken

__all__ = ["Allowance"]

#: Frames at once, and for each second.
_MOST = 4_000
_PER_S = 2_000
#: Windows that may be given for each frame of data that we send: its stream's, the connection's, and one to spare.
_PER_FRAME = 3


class Allowance:
    """That of one connection. It fills up again with time, and with the data that we send, which is answered."""

    __slots__ = ("_left", "_n_paid", "_now_s")

    def __init__(self, now_s: float) -> None:
        self._left = float(_MOST)
        self._now_s = now_s
        self._n_paid = 0

    def spend(self, n: int = 1) -> None:
        """Buy ``n`` frames. Errors: ProtocolBroken."""
        self._left -= n
        if self._left < 0:
            raise ProtocolBroken(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that carry nothing")

    def sent(self, n_frames: int) -> None:
        """Note how many frames of data were sent until now."""
        self._left += _PER_FRAME * (n_frames - self._n_paid)
        self._n_paid = n_frames

    def refill(self, now_s: float) -> None:
        """Note that time has passed."""
        self._left = min(_MOST, self._left + _PER_S * (now_s - self._now_s))
        self._now_s = now_s

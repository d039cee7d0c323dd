"""Whether the other side takes what is sent to it."""

from __future__ import annotations

__all__ = ["Taking"]


class Taking:
    """Since when something waits to be taken and nothing of it is."""

    __slots__ = ("_n_frames", "_since_s")

    def __init__(self) -> None:
        self._since_s: float | None = None
        #: Frames of data that had been sent when it was looked at last.
        self._n_frames = 0

    def is_stuck(self, now_s: float, *, waits: bool, n_frames: int, patience_s: float) -> bool:
        """Return whether nothing was taken for ``patience_s`` seconds of what waits.

        ``waits``: something does. ``n_frames``: frames of data that were sent so far.
        """
        if not waits or n_frames != self._n_frames:
            self._n_frames, self._since_s = n_frames, None
            return False
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= patience_s

"""The end of a process that does not end by itself: threads that run a batch or load a model can't be stopped."""

from __future__ import annotations

import logging
import os
import threading

__all__ = ["end_at_latest"]

_log = logging.getLogger("rowwise")


def end_at_latest(after_s: float) -> None:
    """End this process in ``after_s`` seconds if it is still there. The store loses nothing by it."""
    timer = threading.Timer(after_s, _end)
    timer.daemon = True
    timer.start()


def _end() -> None:
    _log.warning("ended in the middle of something that took longer than the grace period")
    os._exit(1)

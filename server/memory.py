"""Giving freed memory back to the system."""

from __future__ import annotations

import ctypes
import logging

__all__ = ["bound_arenas"]

_log = logging.getLogger(__name__)

#: mallopt(3).
_M_ARENA_MAX = -8
_N_ARENAS = 2


def bound_arenas() -> None:
    """Let glibc use two malloc arenas instead of eight for each core. To be called before threads are started.

    Weights are freed into the arena of the thread that loaded them, and each arena keeps what it once held: with 16
    MiB of weights, resident memory rose by one copy for each of eight loads, and by none with two arenas.
    """
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)
    if mallopt is None or not mallopt(_M_ARENA_MAX, _N_ARENAS):
        _log.debug("this C library has no arenas to bound")

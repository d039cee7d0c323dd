"""Short turns of the processor for the server's thread while something is built, so that it isn't kept waiting for one.

A thread that wakes up beside another that computes gets the processor when its turn is due earlier: the shorter the
turns that it asks for, the earlier. It has no more of the processor for it, only in smaller parts. A server wakes up
for each request, and a core that builds a model keeps it waiting, niceness or not, for up to 4 ms, the length of an
ordinary turn.

Measured on a kernel of 6.18, two cores, four processes that compute with a builder's niceness, a thread that wakes up
every 2 ms: 99th percentile of how late 0.8 to 3.6 ms without, 0.12 to 0.14 ms with this; without the four 0.3 ms.
Turns are not always so short as callers who share a core with the server would be interrupted by each of their
requests: 0.9 times the throughput at 8 and 32 callers.

Source: sched_setattr(2); Linux from 6.12 on takes ``sched_runtime`` of ordinary threads for the length of a turn. Older
ones pay no attention to it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from types import TracebackType
from typing import NamedTuple

__all__ = ["ShortTurns"]

#: Seconds of a turn. The kernel's shortest is 0.1 ms.
_TURN_S = 5e-4
#: sched_setattr, sched_getattr.
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
#: struct sched_attr, as it was first.
_LAYOUT = struct.Struct("=IIQiIQQQ")
_THIS_THREAD = 0


class _Attributes(NamedTuple):
    size: int
    policy: int
    flags: int
    niceness: int
    priority: int
    runtime_ns: int
    deadline_ns: int
    period_ns: int


class ShortTurns:
    """Inside the block, which may be entered several times over, the thread that entered it has short turns.

    All blocks are entered on one thread. One that was given a policy of its own, as in real time, keeps it, and where
    the kernel has no such thing nothing happens. Processes that are started inside have short turns too.
    """

    def __init__(self, turn_s: float = _TURN_S) -> None:
        self._turn_ns = round(turn_s * 1e9)
        self._n_inside = 0

    def __enter__(self) -> None:
        self._n_inside += 1
        if self._n_inside == 1:
            _take_turns_of(self._turn_ns)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._n_inside -= 1
        if not self._n_inside:
            _take_turns_of(0)  # the kernel's own choice


def _take_turns_of(turn_ns: int) -> None:
    calls = _CALLS.get(os.uname().machine)
    if calls is None:
        return
    set_attributes, get_attributes = calls
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(_LAYOUT.size)
    if libc.syscall(get_attributes, _THIS_THREAD, buffer, _LAYOUT.size, 0) != 0:
        return
    found = _Attributes(*_LAYOUT.unpack(buffer.raw))
    if found.policy in {os.SCHED_OTHER, os.SCHED_BATCH}:
        wanted = _LAYOUT.pack(*found._replace(runtime_ns=turn_ns))
        libc.syscall(set_attributes, _THIS_THREAD, ctypes.create_string_buffer(wanted, len(wanted)), 0)

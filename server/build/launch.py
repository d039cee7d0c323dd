"""The first thing that runs in a builder's process: give up what it must not have, then become the worker.

Run as a script, ``python -I -S launch.py PARENT_PID NICENESS UMASK COMMAND...``, and not as a hook between fork and
exec, which is not safe in a process with threads. It imports nothing of ours, so it takes about ten milliseconds.

1. The kernel kills the builder when the server's process ends, however it ends.
2. Orphans of the builder become its children, so that its process tree stays whole and its memory can be counted.
3. It yields to serving: a low claim to the processor, for its session as well as for each process, as a kernel that
   groups tasks by session (``sched_autogroup_enabled``, which most distributions have on) shares the processor between
   sessions first, and would give a builder as much as the server; turns of the ordinary length, as short ones are for
   whoever answers callers (``server.build.short_turns``); the disk when nobody else wants it; and the first to go when
   memory runs out.
4. No core files: a crashed TensorFlow writes gigabytes.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["main"]

# ioprio_set(2), for this process: the class "idle".
_IOPRIO_WHO_PROCESS = 1
_IOPRIO_IDLE = 3 << 13
_SYS_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}

# sched_setattr(2), sched_getattr(2): struct sched_attr and its field sched_runtime, the length of a turn.
_SYS_SCHED_ATTR = {"x86_64": (314, 315), "aarch64": (274, 275)}
_SCHED_ATTR_BYTES = 48
_SCHED_RUNTIME = 24

#: Of 1,000 (proc(5), oom_score_adj): goes before any server, not before a process that asked for it.
_OOM_SCORE = 800

# prctl(2).
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(arguments: list[str]) -> None:
    """Become the command. Does not return."""
    parent, niceness, umask, *command = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_PDEATHSIG, int(signal.SIGKILL)), (_PR_SET_CHILD_SUBREAPER, 1)):
        if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
    if os.getppid() != int(parent):
        # The server ended before the kernel knew that we go with it.
        os.kill(os.getpid(), signal.SIGKILL)
    _yield_further(libc, os.nice(int(niceness)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(int(umask, 8))
    try:
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    except OSError as error:
        # Some sandboxes forbid it; the supervisor's own limit still holds.
        print(f"oom_score_adj was not set: {error.strerror}", file=sys.stderr)  # noqa: T201 - there is no log here
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def _yield_further(libc: ctypes.CDLL, niceness: int) -> None:
    """Yield as a session and at the disk. Where the kernel has no such thing, niceness is all there is."""
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness))
    call = _SYS_IOPRIO_SET.get(os.uname().machine)
    if call is not None:
        libc.syscall(call, _IOPRIO_WHO_PROCESS, 0, _IOPRIO_IDLE)
    if os.uname().machine in _SYS_SCHED_ATTR:
        set_attributes, get_attributes = _SYS_SCHED_ATTR[os.uname().machine]
        attributes = ctypes.create_string_buffer(_SCHED_ATTR_BYTES)
        if libc.syscall(get_attributes, 0, attributes, _SCHED_ATTR_BYTES, 0) == 0:
            ctypes.memset(ctypes.byref(attributes, _SCHED_RUNTIME), 0, 8)
            libc.syscall(set_attributes, 0, attributes, 0)


if __name__ == "__main__":
    main(sys.argv[1:])

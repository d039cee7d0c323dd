"""The processes of one builder: how much memory they hold, and their end.

A tree is what descends from the builder's first process. While that one lives, nothing leaves the tree, for it
adopts its orphans (see ``launch``). When it is gone, what it started is found by a mark in the environment, which
children inherit. Reads ``/proc``; Linux only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

__all__ = ["MARK_VARIABLE", "descendants", "kill_marked", "resident_bytes"]

#: The environment variable that marks a builder's processes. Its value differs for each build.
MARK_VARIABLE = "ROWWISE_BUILD_MARK"

#: Seconds for the kernel to take killed processes down. Only freeing much memory takes any time at all.
_END_S = 10.0

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Return ``pid`` and the processes that descend from it, parents first. Empty if it is gone."""
    tree: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        threads = _numbers(f"/proc/{parent}/task")
        if not threads:
            continue
        tree.append(parent)
        for thread in threads:
            waiting.extend(map(int, _read(f"/proc/{parent}/task/{thread}/children").split()))
    return tree


def resident_bytes(pid: int) -> int:
    """Return the resident memory of ``pid`` and its descendants together; 0 if it is gone.

    Pages that several of them share are counted for each.
    """
    pages = 0
    for process in descendants(pid):
        fields = _read(f"/proc/{process}/statm").split()
        pages += int(fields[1]) if fields else 0
    return pages * _PAGE_BYTES


def kill_marked(pid: int, mark: str) -> None:
    """Kill the builder whose first process is ``pid``: its process group, its descendants, and whatever has its mark.

    SIGKILL at once: what it wrote is thrown away, so it has nothing to put in order. A process that has the signal
    can't start another one, so the last round finds nobody new. ``pid`` must not have been waited for, so that it
    can't be another process by now. Returns when they have ended, or ``_END_S`` later.
    """
    signalled: set[int] = set()
    while True:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        new = {*descendants(pid), *_marked(mark)} - signalled
        if not new:
            break
        for process in new:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        signalled |= new
    patience = time.monotonic() + _END_S
    while any(map(_is_running, signalled)) and time.monotonic() < patience:
        time.sleep(0.002)


def _is_running(pid: int) -> bool:
    state = _read(f"/proc/{pid}/stat").rpartition(b") ")[2][:1]
    return state not in {b"", b"Z", b"X"}


def _marked(mark: str) -> Iterator[int]:
    entry = f"{MARK_VARIABLE}={mark}".encode()
    for process in _numbers("/proc"):
        if entry in _read(f"/proc/{process}/environ").split(b"\0"):
            yield process


def _numbers(directory: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(directory) if name.isdigit()]  # noqa: PTH208 - see _read
    except OSError:
        return []


def _read(path: str) -> bytes:
    """Return a file of ``/proc``; empty if its process is gone or isn't ours.

    System calls alone, for TensorFlow has 60 threads with a file each, read 20 times a second: 0.6 ms of processor
    time a look, 2.5 ms with pathlib.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(descriptor, 65_536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(descriptor)

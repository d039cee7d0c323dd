"""The processes of one builder: how much memory they hold, and their end.

A tree is what descends from the builder's first process. While that one lives, nothing leaves the tree, for it
adopts its orphans (see ``launch``). When it is gone, what it started is found by a mark in the environment, which
children inherit. Reads ``/proc``; Linux only.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["MARK_VARIABLE", "descendants", "kill_marked", "resident_bytes"]

#: The environment variable that marks a builder's processes. Its value differs for each build.
MARK_VARIABLE = "ROWWISE_BUILD_MARK"

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Return ``pid`` and the processes that descend from it, parents first. Empty if it is gone."""
    tree: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        threads = _numbers(_PROC / str(parent) / "task")
        if not threads:
            continue
        tree.append(parent)
        for thread in threads:
            with suppress(OSError):
                children = (_PROC / str(parent) / "task" / str(thread) / "children").read_text()
                waiting.extend(map(int, children.split()))
    return tree


def resident_bytes(pid: int) -> int:
    """Return the resident memory of ``pid`` and its descendants together; 0 if it is gone.

    Pages that several of them share are counted for each.
    """
    pages = 0
    for process in descendants(pid):
        with suppress(OSError, IndexError, ValueError):
            pages += int((_PROC / str(process) / "statm").read_bytes().split()[1])
    return pages * _PAGE_BYTES


def kill_marked(pid: int, mark: str) -> None:
    """Kill the builder whose first process is ``pid``: its process group, its descendants, and whatever has its mark.

    SIGKILL at once: what it wrote is thrown away, so it has nothing to put in order. A process that has the signal
    can't start another one, so the last round finds nobody new. ``pid`` must not have been waited for, so that it
    can't be another process by now.
    """
    signalled: set[int] = set()
    while True:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        new = {*descendants(pid), *_marked(mark)} - signalled
        if not new:
            return
        for process in new:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        signalled |= new


def _marked(mark: str) -> Iterator[int]:
    entry = f"{MARK_VARIABLE}={mark}".encode()
    for process in _numbers(_PROC):
        with suppress(OSError):
            if entry in (_PROC / str(process) / "environ").read_bytes().split(b"\0"):
                yield process


def _numbers(directory: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(directory) if name.isdigit()]  # noqa: PTH208 - names only, often
    except OSError:
        return []

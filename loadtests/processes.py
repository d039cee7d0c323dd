"""The processes of a running server, as the kernel shows them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Usage", "children", "cpu_s", "descendants", "is_builder", "stop_tree", "tree_cpu_s", "until", "usage"]

_PAGE_KB = 1_024


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes hold, summed: resident memory in MB, open file descriptors, threads."""

    rss_mb: float
    n_fds: int
    n_threads: int


def children(pid: int) -> dict[int, list[str]]:
    """Return the command line of each child process, by its id."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int((process / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                line = (process / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace")
                found[int(process.name)] = line.split("\0")
        except (OSError, IndexError, ValueError):
            continue
    return found


def descendants(pid: int) -> Iterator[int]:
    """Yield the ids of all processes below one."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used, in seconds; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    # Fields 14 and 15 of proc(5), counted from the state, which is the third.
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tree_cpu_s(pid: int) -> float:
    """Return the processor time of a process and of all below it, in seconds."""
    return cpu_s(pid) + sum(map(cpu_s, descendants(pid)))


def stop_tree(process: subprocess.Popen[bytes], *, within_s: float) -> None:
    """Ask a process to stop, kill it if it doesn't ``within_s``, and kill what it leaves behind of its own."""
    below = list(descendants(process.pid))
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in below:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_builder(command_line: list[str]) -> bool:
    """Return whether a process is a builder, or is about to become one."""
    return any("server.build" in part or part.endswith("server/build/launch.py") for part in command_line)


def usage(pid: int) -> Usage:
    """Return what a server's processes hold: all of them that serve, builders left out."""
    pids = [pid, *(child for child, line in children(pid).items() if not is_builder(line))]
    rss_mb, n_fds, n_threads = 0.0, 0, 0
    for process in pids:
        try:
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in lines if ":" in line)
            rss_mb += int(fields["VmRSS"].split()[0]) / _PAGE_KB
            n_threads += int(fields["Threads"])
            n_fds += len(list(Path(f"/proc/{process}/fd").iterdir()))
        except (OSError, KeyError):
            continue
    return Usage(rss_mb, n_fds, n_threads)


def until(holds: Callable[[], object], what: str, *, timeout_s: float = 120.0) -> None:
    """Wait until something holds. Errors: TimeoutError, which says ``what`` did not come to be."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"after {timeout_s:.0f} s still not: {what}")
        time.sleep(0.05)

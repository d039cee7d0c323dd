"""Which processes the server is, and what each of them has: read from the kernel, about any process of this user."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

__all__ = ["ProcessTable", "Usage", "read_table", "table_of_one", "usage_of", "write_table"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """Process ids by name, and how often each process was started again since the server was started."""

    pids: Mapping[str, int]
    restarts: Mapping[str, int] = field(default_factory=dict)


def table_of_one() -> ProcessTable:
    """Return the table of a server that is this process alone."""
    return ProcessTable(pids={"server": os.getpid()})


def write_table(table: ProcessTable, path: Path) -> None:
    """Write it where ``read_table`` finds it, whole at any moment. Errors: OSError."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(table)))
    new.replace(path)


def read_table(path: Path) -> ProcessTable:
    """Return what was written last; this process alone if nothing was."""
    try:
        told = json.loads(path.read_text())
    except OSError:
        return table_of_one()
    return ProcessTable(pids=told["pids"], restarts=told["restarts"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one process has. ``started_s`` is in seconds since 1970, ``cpu_s`` of all its threads together.

    ``age_s``: seconds since it was started, whatever was done to the clock.
    """

    resident_bytes: int
    n_descriptors: int
    max_descriptors: int
    n_threads: int
    cpu_s: float
    started_s: float
    age_s: float


def usage_of(pid: int) -> Usage | None:
    """Return what a process has now; None if it has ended.

    Source: proc(5), fields of /proc/PID/stat.
    """
    directory = Path("/proc", str(pid))
    try:
        # The name before the last parenthesis may hold anything; what follows is field 3 and on.
        fields = (directory / "stat").read_text().rpartition(")")[2].split()
        limits = (directory / "limits").read_text()
        n_descriptors = sum(1 for _ in os.scandir(directory / "fd"))
    except OSError:
        return None
    soft = next(line.split()[3] for line in limits.splitlines() if line.startswith("Max open files"))
    started_after_boot_s = int(fields[19]) / _TICKS_PER_S
    return Usage(
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
        n_descriptors=n_descriptors,
        max_descriptors=int(soft) if soft.isdigit() else 2**63 - 1,
        n_threads=int(fields[17]),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
        started_s=_booted_s() + started_after_boot_s,
        age_s=time.clock_gettime(time.CLOCK_BOOTTIME) - started_after_boot_s,
    )


@cache
def _booted_s() -> float:
    """Return when the system was started: once, as the clock is set right meanwhile, and no process starts twice."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

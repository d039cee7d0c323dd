"""What the control groups of this process allow it, of version 1 or 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CgroupLimits", "read_cgroup"]

#: Version 1 says "no limit" by a number near 2**63.
_NO_LIMIT = 2**60


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLimits:
    """Cores' worth of time, bytes, and processes with threads; None: no limit."""

    cores: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None


def read_cgroup(root: Path = Path("/sys/fs/cgroup"), membership: str | None = None) -> CgroupLimits:
    """Read the tightest limits of the groups that a process is in and of those above them.

    ``membership`` is the text of its /proc/PID/cgroup; None: this process's.
    """
    if membership is None:
        own = Path("/proc/self/cgroup")
        membership = own.read_text() if own.is_file() else ""
    groups = list(_groups(root, membership))
    return CgroupLimits(
        cores=min((each for group in groups if (each := _cores(group)) is not None), default=None),
        memory_bytes=_tightest(groups, ("memory.max", "memory.limit_in_bytes")),
        processes=_tightest(groups, ("pids.max",)),
    )


def _groups(root: Path, membership: str) -> Iterator[Path]:
    """Yield the directory of each group and of those above it, as it is seen here: a container sees its own as /."""
    for line in membership.splitlines():
        number, controllers, path = line.split(":", 2)
        tops = [root] if number == "0" else [root / name for name in controllers.split(",")]
        for top in tops:
            group = top / path.lstrip("/")
            yield from (each for each in (group, *group.parents) if each == top or top in each.parents)


def _cores(group: Path) -> float | None:
    quota, period = (_word(group / "cpu.max", index) for index in (0, 1))
    if quota is None:
        quota, period = _word(group / "cpu.cfs_quota_us"), _word(group / "cpu.cfs_period_us")
    return quota / period if quota is not None and period and quota > 0 else None


def _tightest(groups: list[Path], names: tuple[str, ...]) -> int | None:
    found = [value for group in groups for name in names if (value := _word(group / name)) is not None]
    return min((value for value in found if value < _NO_LIMIT), default=None)


def _word(file: Path, index: int = 0) -> int | None:
    try:
        words = file.read_text().split()
    except OSError:
        return None
    return int(words[index]) if len(words) > index and words[index].lstrip("-").isdigit() else None

"""How much of the disk a build takes, as far as it can be seen, and by what the file system lost where it can't.

A jailed builder writes into its own directories and nowhere else, so those are looked at. What it has deleted and holds
open is in none of them: that shows in the free space alone, together with what others write. It counts once space is
scarce.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["DiskUse"]

_BLOCK_BYTES = 512
#: What the smallest file takes, in its directory and elsewhere.
_LEAST_BYTES = 4_096


class DiskUse:
    """What is written below some directories from now on. ``used`` is called on a thread."""

    def __init__(self, tops: Sequence[Path], *, limit_bytes: int) -> None:
        self._tops = tuple(tops)
        self._limit_bytes = limit_bytes
        self._free_at_start = self._free()

    def used(self) -> int:
        """Return the bytes that are used; no more is looked at once it is over the limit."""
        total = 0
        for top in self._tops:
            for directory, directories, names in os.walk(top):
                total += _LEAST_BYTES * len(directories)
                for name in names:
                    total += _size(os.path.join(directory, name))  # noqa: PTH118 - there may be very many
                if total > self._limit_bytes:
                    return total
        free = self._free()
        lost = self._free_at_start - free
        return lost if free < self._limit_bytes < lost else total

    def _free(self) -> int:
        found = os.statvfs(self._tops[0])
        return found.f_bavail * found.f_frsize


def _size(path: str) -> int:
    try:
        return max(os.lstat(path).st_blocks * _BLOCK_BYTES, _LEAST_BYTES)
    except OSError:
        return 0

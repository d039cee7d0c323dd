"""What every archive format is read as: entries, and a budget for the bytes that come out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from server.build.errors import ArchiveTooLarge
from server.build.limits import ArchiveLimits

__all__ = ["CHUNK_BYTES", "ByteBudget", "Entry"]

#: Bytes that are held in memory at once.
CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory as the archive names it: nothing about ``name`` is checked yet.

    ``size_bytes`` is what the archive claims. ``chunks`` gives the contents once; it ends with the next entry.
    """

    name: str
    is_directory: bool
    size_bytes: int
    chunks: Iterator[bytes]


class ByteBudget:
    """Counts what an archive of ``packed_bytes`` unpacks to, and ends it at the limits."""

    def __init__(self, *, packed_bytes: int, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._packed_bytes = max(packed_bytes, 1)
        self._unpacked_bytes = 0

    def check(self, n_bytes: int) -> None:
        """Refuse ``n_bytes`` more before any of them is read. Errors: ArchiveTooLarge."""
        total = self._unpacked_bytes + n_bytes
        limits = self._limits
        if total > limits.max_unpacked_bytes:
            raise ArchiveTooLarge(
                f"the archive unpacks to at least {total} bytes, over max_unpacked_bytes = {limits.max_unpacked_bytes}"
            )
        if total > max(limits.ratio_free_bytes, self._packed_bytes * limits.max_ratio):
            raise ArchiveTooLarge(
                f"the archive of {self._packed_bytes} bytes unpacks to at least {total}, over max_ratio = "
                f"{limits.max_ratio} to 1: no SavedModel compresses like that"
            )

    def take(self, n_bytes: int) -> None:
        """Count ``n_bytes`` that came out. Errors: ArchiveTooLarge."""
        self.check(n_bytes)
        self._unpacked_bytes += n_bytes

"""Which batch sizes are compiled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from vectorizer.errors import DeclarationError

__all__ = ["AUTO_BUCKETS", "bucket_sizes"]

#: What ``buckets="auto"`` compiles: powers of two, as every step up may only double the padding.
AUTO_BUCKETS = (1, 2, 4, 8, 16, 32, 64)


def bucket_sizes(buckets: str | Sequence[int]) -> tuple[int, ...]:
    """Return the batch sizes to compile, ascending. Errors: DeclarationError."""
    if buckets == "auto":
        return AUTO_BUCKETS
    if isinstance(buckets, str) or not isinstance(buckets, Collection):
        raise DeclarationError(f"buckets: expected 'auto' or batch sizes, got {buckets!r}")
    if not buckets or any(not _is_size(size) for size in buckets):
        raise DeclarationError(f"buckets: expected batch sizes of at least 1, got {tuple(buckets)}")
    return tuple(sorted(set(buckets)))


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 1

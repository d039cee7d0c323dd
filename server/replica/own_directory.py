"""A directory for each replica on a machine, and the end of those that replicas which were killed have left."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["OwnDirectory"]

_PREFIX = "replica-"


class OwnDirectory:
    """A new directory below ``base`` until ``close``. Errors: OSError where none can be made.

    It is locked while its replica lives, by the kernel, which gives the lock back however the process ends. Whoever
    makes one removes those that nobody holds; both happen under a lock of ``base``, so that none is taken for left
    behind before its replica holds it.
    """

    def __init__(self, base: Path) -> None:
        base.mkdir(parents=True, exist_ok=True)
        with _locked(base):
            for left in base.glob(_PREFIX + "*"):
                _remove_unless_held(left)
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
            self._held = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._held, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_unless_held(directory: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(descriptor)

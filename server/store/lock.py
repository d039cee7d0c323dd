"""One process at a time: the store's lock file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from server.store.errors import StoreLocked, StoreUnwritable

__all__ = ["StoreLock"]


class StoreLock:
    """An advisory lock that the kernel gives back when the process ends, however it ends.

    The file holds the holder's process id, for the message of whoever comes second; the lock itself is the
    kernel's (flock), so that a stale file locks nobody out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        #: The open lock file while held, else None.
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock. Errors: StoreLocked with the holder's process id; StoreUnwritable."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreUnwritable(f"{str(self._path)!r} can't be opened ({error.strerror})") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).strip()
            os.close(descriptor)
            raise StoreLocked(self._path.parent, int(holder) if holder.isdigit() else 0) from None
        except OSError as error:
            os.close(descriptor)
            raise StoreUnwritable(f"{str(self._path)!r} can't be locked ({error.strerror})") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back. Nothing happens where it isn't held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

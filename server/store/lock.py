"""One process at a time: the store's lock file."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from server.store.errors import StoreLocked, StoreUnwritable

__all__ = ["StoreLock"]

_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class StoreLock:
    """An advisory lock that the kernel gives back when the process ends, however it ends.

    The file holds the holder's process id, for the message of whoever comes second; the lock itself is the
    kernel's (flock), so that a stale file locks nobody out. Where the file can only be read, the lock is one that
    readers share: it keeps out whoever would write, and any number of servers serve from the store.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        #: The open lock file while held, else None.
        self._descriptor: int | None = None
        #: True while held for reading alone.
        self.is_read_only = False

    def acquire(self) -> None:
        """Take the lock. Errors: StoreLocked with the holder's process id; StoreUnwritable."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise StoreUnwritable(f"{str(self._path)!r} can't be opened ({error.strerror})") from error
            descriptor = self._open_to_read(error)
            self.is_read_only = True
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if self.is_read_only else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).strip()
            os.close(descriptor)
            raise StoreLocked(self._path.parent, int(holder) if holder.isdigit() else 0) from None
        except OSError as error:
            os.close(descriptor)
            raise StoreUnwritable(f"{str(self._path)!r} can't be locked ({error.strerror})") from error
        self._descriptor = descriptor
        if not self.is_read_only:
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except OSError:
                pass  # a full disk: who comes second is told of another process without its number

    def _open_to_read(self, refused: OSError) -> int:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise StoreUnwritable(
                f"{str(self._path)!r} can't be made ({refused.strerror}): a store is made where it can be written"
            ) from refused

    def check_writable(self) -> None:
        """Errors: StoreUnwritable for a store that was opened for reading, deleted since, or replaced by another."""
        assert self._descriptor is not None, "the store is open"
        if self.is_read_only:
            raise StoreUnwritable(
                f"store {str(self._path.parent)!r} is read-only: what is in it is served, and nothing can be changed"
            )
        try:
            there = self._path.stat()
        except OSError:
            there = None
        held = os.fstat(self._descriptor)
        if there is None or (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            raise StoreUnwritable(
                f"store {str(self._path.parent)!r} was deleted or replaced while the server runs: what is loaded goes "
                "on serving; restart the server to use what is there now"
            )

    def release(self) -> None:
        """Give the lock back. Nothing happens where it isn't held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

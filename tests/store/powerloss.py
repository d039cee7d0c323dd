"""What a power cut leaves: only what was fsynced, and nothing that merely looked written."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class PowerLoss:
    """An ``fsync`` that remembers what is safe, and builds the directory that a power cut would leave.

    A file's contents and a directory's names are each as of its last fsync. That is the least that a file system
    may keep; what it keeps beyond that is the other extreme, which killing the process shows.
    """

    def __init__(self) -> None:
        self._files: dict[int, bytes] = {}
        self._directories: dict[int, dict[str, tuple[int, bool]]] = {}
        #: Held open, so that no inode number is given out twice.
        self._held: list[int] = []

    def fsync(self, descriptor: int) -> None:
        """Take the place of os.fsync."""
        status = os.fstat(descriptor)
        self._held.append(os.dup(descriptor))
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(f"/proc/self/fd/{descriptor}") as entries:
                self._directories[status.st_ino] = {
                    entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in entries
                }
        else:
            self._files[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def leave(self, root: Path, target: Path, *, names_last: bool) -> None:
        """Build at ``target`` what is left of ``root``. ``names_last``: names survive without fsync, contents don't."""
        self._leave(root.stat().st_ino, root if names_last else None, target)

    def _leave(self, inode: int, actual: Path | None, target: Path) -> None:
        target.mkdir()
        entries = self._directories.get(inode, {})
        if actual is not None:
            entries = {entry.name: (entry.stat().st_ino, entry.is_dir()) for entry in actual.iterdir()}
        for name, (child, is_directory) in entries.items():
            if is_directory:
                self._leave(child, None if actual is None else actual / name, target / name)
            else:
                (target / name).write_bytes(self._files.get(child, b""))

    def close(self) -> None:
        """Let go of what is held open."""
        for descriptor in self._held:
            os.close(descriptor)
        self._held.clear()

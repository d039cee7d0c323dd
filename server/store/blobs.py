"""Every file of every artifact once, whatever versions and models have it: names by SHA-256 for files of artifacts.

A blob and the files that have its contents are one file under several names (hard links), which is why:

1. An artifact is a whole directory, as the engine loads it, and depends on nothing here. ``blobs`` may be lost, or
   copied without its links: then files that come are not shared with those that were there, and that is all.
2. The file system counts who uses a blob. One whose only name is here is used by nobody, and is swept; there is no
   count of ours that a crash could leave wrong. A link that is made while its blob is swept either is there before, and
   keeps the contents, or finds nothing, and then its own file becomes the blob.
3. A file gets its name here after its contents are on the disk, and is compared with the blob before it is replaced by
   it: damage does not spread to versions that are registered later.
4. A file that is shared must not be written to: it is made read-only and the store's own, and one that has another name
   already, which its builder could write to, is copied.

Where the file system has no hard links, nothing is shared.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from server.store.contents import Contents, digest_file, digest_tree, regular_files
from server.store.durable import Disk
from server.store.errors import StoreDamaged, unwritable

__all__ = ["Blobs"]

_log = logging.getLogger(__name__)

#: What file systems say that have no hard links, or no more of them for this file.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS})


class Blobs:
    """The directory of blobs."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._root = root
        self._disk = disk

    def take_in(self, directory: Path, *, is_ours: bool = False) -> Contents:
        """Read a directory that is to be committed, and let its files be those that are here already, where they are.

        ``is_ours``: it has been committed before, so that its files have no names but the store's.
        Errors: StoreDamaged for a link, pipe or device in it; StoreUnwritable.
        """
        try:
            for file in regular_files(directory):
                _own(file, is_ours=is_ours)
            contents = digest_tree(directory)
            for path, digest in contents.files.items():
                blob = self._root / digest.sha256
                if blob.exists() and self._is_sound(blob):
                    self._share(blob, directory / path)
        except OSError as error:
            raise unwritable(repr(str(directory)), error) from error
        return contents

    def keep(self, directory: Path, contents: Contents) -> None:
        """Name the files of a directory here. They must be on the disk. Errors: StoreUnwritable."""
        new = {
            self._root / digest.sha256: directory / path
            for path, digest in contents.files.items()
            if not (self._root / digest.sha256).exists()
        }
        if not new:
            return
        try:
            for blob, file in new.items():
                self._disk.link(file, blob)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise unwritable(repr(str(self._root)), error) from error
            _log.info("files are not shared between versions: %s", error.strerror)
        self._disk.sync_directory(self._root)

    def sweep(self, digests: Iterable[str] | None = None) -> int:
        """Delete blobs that nobody uses, of these or all; return the bytes that were given back."""
        freed = 0
        if not self._root.is_dir():
            return freed  # a store of a release before this one, that is only looked at
        paths = sorted(self._root.iterdir()) if digests is None else [self._root / digest for digest in digests]
        for blob in paths:
            try:
                status = blob.lstat()
            except FileNotFoundError:
                continue
            if status.st_nlink <= 1:
                self._disk.discard(blob)
                freed += status.st_size
        return freed

    def _is_sound(self, blob: Path) -> bool:
        try:
            if digest_file(blob).sha256 == blob.name:
                return True
        except (OSError, StoreDamaged):
            pass
        _log.warning("%s", StoreDamaged(blob, "it is not shared any more; `rowwise store verify` says who has it"))
        self._disk.discard(blob)
        return False

    def _share(self, blob: Path, file: Path) -> None:
        try:
            self._disk.replace_by_link(blob, file)
        except FileNotFoundError:
            pass  # swept meanwhile: this file is the blob from now on
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise


def _own(file: Path, *, is_ours: bool) -> None:
    """Make a file the store's alone, and read-only."""
    status = file.lstat()
    if status.st_nlink > 1 and not is_ours:
        copy = file.with_name(file.name + ".copy")
        shutil.copyfile(file, copy, follow_symlinks=False)
        copy.replace(file)
        status = file.lstat()
    if status.st_uid != os.geteuid() and os.geteuid() == 0:
        os.chown(file, 0, os.getegid(), follow_symlinks=False)
    file.chmod(0o444)

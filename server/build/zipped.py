"""Read a ``.zip`` entry by entry, in bounded memory."""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

from server.build.entries import CHUNK_BYTES, ByteBudget, Entry
from server.build.errors import ArchiveDamaged, ArchiveTooLarge, ArchiveUnsafe
from server.build.limits import ArchiveLimits

__all__ = ["read_zip"]

#: Room for one entry in the zip's table of contents: 46 bytes, its path, times and owners.
_DIRECTORY_BYTES_PER_ENTRY = 2_048

#: Deflate is what everybody writes. The others need memory that the archive chooses (LZMA up to 4 GiB).
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})

_ENCRYPTED_FLAG = 0x1

_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, UnicodeError, ValueError)


def read_zip(path: Path, budget: ByteBudget, limits: ArchiveLimits) -> Generator[Entry, None, None]:
    """Give the files and directories of a zip, in the order of its table of contents.

    Errors: ArchiveDamaged; ArchiveUnsafe for links, devices and encrypted entries; ArchiveTooLarge.
    """
    most = limits.max_entries * _DIRECTORY_BYTES_PER_ENTRY
    with _BoundedReads(path, max(most, CHUNK_BYTES)) as file:
        try:
            archive = zipfile.ZipFile(file)
        except _DAMAGE as error:
            raise ArchiveDamaged(f"the zip is damaged or cut short: {error}") from error
        with archive:
            for info in archive.infolist():
                _check_kind(info)
                budget.check(0 if info.is_dir() else info.file_size)
                yield Entry(info.filename, info.is_dir(), info.file_size, _chunks(archive, info, budget))


def _check_kind(info: zipfile.ZipInfo) -> None:
    name = info.orig_filename
    if "\0" in name:
        raise ArchiveUnsafe(f"entry {name!r} of the zip has a zero byte in its path")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind and not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        what = "a symbolic link" if stat.S_ISLNK(kind) else "a device or pipe"
        raise ArchiveUnsafe(f"entry {name!r} of the zip is {what}: a SavedModel has files and directories only")
    if info.flag_bits & _ENCRYPTED_FLAG:
        raise ArchiveUnsafe(f"entry {name!r} of the zip is encrypted: pack it without a password")
    if info.compress_type not in _METHODS:
        raise ArchiveUnsafe(f"entry {name!r} of the zip uses compression method {info.compress_type}: use deflate")


def _chunks(archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: ByteBudget) -> Iterator[bytes]:
    try:
        with archive.open(info) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                budget.take(len(chunk))
                yield chunk
    except _DAMAGE as error:
        raise ArchiveDamaged(f"entry {info.filename!r} of the zip is damaged: {error}") from error


class _BoundedReads(io.BufferedReader):
    """A file of which nobody reads much at once: the zip's table of contents is read whole, however long it says."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(io.FileIO(path))
        self._size_bytes = path.stat().st_size
        self._max_bytes = max_bytes

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_SET and offset < 0:
            raise zipfile.BadZipFile("it points before its own start")
        return super().seek(offset, whence)

    def read(self, size: int | None = -1, /) -> bytes:
        # Never more than there is: a buffer of the size that is asked for would be made first.
        left = max(self._size_bytes - self.tell(), 0)
        size = left if size is None or size < 0 else min(size, left)
        if size > self._max_bytes:
            raise ArchiveTooLarge(f"the zip's table of contents has {size} bytes, over {self._max_bytes}")
        return super().read(size)

"""Read a ``.tar.gz`` front to back, in bounded memory.

Understands what tar programs write for files and directories: ustar, GNU long names, pax paths and sizes. Anything
else is refused by name. Our own loop over the headers, for the standard library's reads extended headers of any
size into memory, and seeks backwards, which makes gzip start over.

Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header"; the GNU tar manual, "Basic Tar Format".
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

from server.build.entries import CHUNK_BYTES, ByteBudget, Entry
from server.build.errors import ArchiveDamaged, ArchiveTooLarge, ArchiveUnsafe, NotAnArchive

__all__ = ["read_tar_gz"]

_BLOCK = 512
_END = bytes(_BLOCK)

#: The largest extended header that is read. Real ones hold a path, and on macOS file attributes.
_MAX_HEADER_BYTES = 2**20

_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a character device",
    tarfile.BLKTYPE: "a block device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


def read_tar_gz(path: Path, budget: ByteBudget) -> Generator[Entry, None, None]:
    """Give the files and directories of a gzip-compressed tar, in order.

    Errors: NotAnArchive if there is no tar in the gzip; ArchiveDamaged; ArchiveUnsafe for any other kind of entry;
        ArchiveTooLarge.
    """
    with gzip.open(path, "rb") as file:
        stream = _Stream(file, budget)
        long_name: str | None = None
        pax: dict[str, str] = {}
        first = True
        while (block := stream.header()) is not None:
            try:
                header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                if first:
                    raise NotAnArchive("the file is gzip-compressed, but what is in it is no tar") from error
                raise ArchiveDamaged(f"a header of the tar is damaged: {error}") from error
            first = False
            kind, size = header.type, header.size
            if size < 0:
                raise ArchiveDamaged(f"entry {header.name!r} of the tar has a negative size")
            if kind in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
                body = stream.extended(size)
                if kind == tarfile.GNUTYPE_LONGNAME:
                    long_name = body.rstrip(b"\0").decode("utf-8", "surrogateescape")
                continue
            if kind in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
                pax = _pax_records(stream.extended(size))
                continue
            if kind == tarfile.XGLTYPE:
                if {"path", "size", "linkpath"} & _pax_records(stream.extended(size)).keys():
                    raise ArchiveUnsafe("the tar has a global header that renames or resizes its entries")
                continue
            name = pax.get("path", long_name if long_name is not None else header.name)
            size = _pax_size(pax, size)
            long_name, pax = None, {}
            if kind not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
                what = _KINDS.get(kind, f"of type {kind!r}")
                raise ArchiveUnsafe(f"entry {name!r} of the tar is {what}: a SavedModel has files and directories only")
            yield from stream.entry(name, size, is_directory=kind == tarfile.DIRTYPE)
        if first:
            raise NotAnArchive("the tar is empty")


class _Stream:
    """The uncompressed tar, read forwards only, every byte counted."""

    def __init__(self, file: gzip.GzipFile, budget: ByteBudget) -> None:
        self._file = file
        self._budget = budget

    def header(self) -> bytes | None:
        """Read the next header block; None at the end of the archive, marked or not."""
        block = self._read(_BLOCK)
        return None if not block or block == _END else block

    def extended(self, size_bytes: int) -> bytes:
        """Read the body of an extended header."""
        if size_bytes > _MAX_HEADER_BYTES:
            raise ArchiveTooLarge(f"a header of the tar has {size_bytes} bytes, over {_MAX_HEADER_BYTES}")
        body = self._read(size_bytes, exact=True)
        self._read(-size_bytes % _BLOCK, exact=True)
        return body

    def entry(self, name: str, size_bytes: int, *, is_directory: bool) -> Iterator[Entry]:
        """Give one entry, and read past whatever of it nobody wanted."""
        self._budget.check(size_bytes)
        chunks = self._chunks(size_bytes)
        yield Entry(name, is_directory, size_bytes, chunks)
        for _ in chunks:
            pass
        self._read(-size_bytes % _BLOCK, exact=True)

    def _chunks(self, left: int) -> Iterator[bytes]:
        while left:
            chunk = self._read(min(left, CHUNK_BYTES), exact=True)
            left -= len(chunk)
            yield chunk

    def _read(self, size_bytes: int, *, exact: bool = False) -> bytes:
        try:
            read = self._file.read(size_bytes)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ArchiveDamaged(f"the archive's compression is damaged or cut short: {error}") from error
        self._budget.take(len(read))
        if exact and len(read) < size_bytes:
            raise ArchiveDamaged("the tar is cut short")
        return read


def _pax_records(body: bytes) -> dict[str, str]:
    records: dict[str, str] = {}
    position = 0
    while position < len(body):
        try:
            space = body.index(b" ", position)
            end = position + int(body[position:space])
            key, equals, value = body[space + 1 : end - 1].partition(b"=")
        except ValueError as error:
            raise ArchiveDamaged("an extended header of the tar is damaged") from error
        if not equals or not position < end <= len(body) or body[end - 1 : end] != b"\n":
            raise ArchiveDamaged("an extended header of the tar is damaged")
        records[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        position = end
    if any(key.startswith("GNU.sparse.") for key in records):
        raise ArchiveUnsafe("the tar holds a sparse file: make it without --sparse")
    return records


def _pax_size(pax: dict[str, str], size: int) -> int:
    if "size" not in pax:
        return size
    if not (pax["size"].isascii() and pax["size"].isdigit()):
        raise ArchiveDamaged(f"an extended header of the tar says size {pax['size']!r}")
    return int(pax["size"])

"""Counts in a file that is memory: written by one process, read by others, and still there when that one was killed.

Answers are counted where they are given, and a worker may be killed between two scrapes: what it has counted must not
go with it, or sums would fall. So each process counts in a file of its own, mapped into its memory, and its successor
goes on in the same file. Counting is one store of eight bytes, which no reader ever sees half of.

::

    bytes 0-7      magic
    bytes 8-15     where the next record begins; written after the record before it is complete
    records        value (uint64), length of the key (uint64), key (JSON list of labels), zeros up to a multiple of 8
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

__all__ = ["Count", "Labels", "Tally", "read_tally"]

Labels = tuple[str, ...]


class Count(Protocol):
    """Counts."""

    def __call__(self, n: int = 1) -> None:
        """Count so many."""


_MAGIC = b"rwtally1"
_HEADER_BYTES = 16
#: A file to begin with. It takes disk space only where something was written; it doubles when it is full.
_FIRST_BYTES = 2**16


class Tally:
    """Counters by their labels. ``path`` None: in memory that goes with the process.

    Only one process at a time may have a file open. Errors: OSError; ValueError for a file that is no tally.
    """

    def __init__(self, path: Path | None = None) -> None:
        if path is None:
            self._file = os.memfd_create("tally", os.MFD_CLOEXEC)
        else:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(self._file).st_size
        is_new = size < _HEADER_BYTES
        if is_new:
            os.ftruncate(self._file, _FIRST_BYTES)
        elif os.pread(self._file, len(_MAGIC), 0) != _MAGIC:
            os.close(self._file)
            raise ValueError(f"{path} holds no counts")
        self._map_all()
        if is_new:
            self._bytes[8:16] = struct.pack("=Q", _HEADER_BYTES)
            self._bytes[0:8] = _MAGIC
        #: Where each counter is, in units of eight bytes.
        self._places = {labels: place for labels, place, _ in _records(self._bytes)}

    def counter(self, *labels: str) -> Count:
        """Return what counts under these labels, one or more at a time; its count goes on where the file has it."""
        place = self._places.get(labels)
        if place is None:
            place = self._places[labels] = self._append(labels)
        cells = self._cells

        def count(n: int = 1) -> None:
            cells[place] += n

        return count

    def counts(self) -> Iterator[tuple[Labels, int]]:
        """Yield every counter."""
        for labels, place in self._places.items():
            yield labels, self._cells[place]

    def close(self) -> None:
        """Give the descriptor back. Counters must not be used any more."""
        os.close(self._file)

    def _map_all(self) -> None:
        # Counters that were handed out keep the mapping before this one: it shows the same file.
        self._bytes = mmap.mmap(self._file, 0)
        self._cells = memoryview(self._bytes).cast("Q")

    def _append(self, labels: Labels) -> int:
        key = json.dumps(labels).encode("ascii")
        start = self._cells[1]
        stop = start + 16 + len(key) + -len(key) % 8
        while stop > len(self._bytes):
            os.ftruncate(self._file, 2 * len(self._bytes))
            self._map_all()
        self._bytes[start : start + 16 + len(key)] = struct.pack("=QQ", 0, len(key)) + key
        self._cells[1] = stop
        return int(start // 8)


def read_tally(path: Path) -> list[tuple[Labels, int]]:
    """Return every counter of another process's file; none of one that was only just made. Errors: OSError."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < _HEADER_BYTES:
            return []
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return [(labels, value) for labels, _, value in _records(data)] if data[:8] == _MAGIC else []


def _records(data: mmap.mmap) -> Iterator[tuple[Labels, int, int]]:
    """Yield labels, place and value."""
    (end,) = struct.unpack_from("=Q", data, 8)
    # A file that has just grown is read up to where it was mapped.
    end = min(end, len(data))
    start = _HEADER_BYTES
    while start < end:
        value, n_key = struct.unpack_from("=QQ", data, start)
        yield tuple(json.loads(data[start + 16 : start + 16 + n_key])), start // 8, value
        start += 16 + n_key + -n_key % 8

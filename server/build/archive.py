"""Unpack an uploaded SavedModel, under limits, into a directory that nothing in the archive can leave.

Theory of operation: a reader for each format (``targz``, ``zipped``) gives entries; one writer, here, checks every
path and creates every file; a budget counts every byte. So all formats have the same rules:

1. A path is relative, has no ``..``, no backslash, no control character, and comes once, also for a reader that takes
   upper and lower case, or two ways of writing one character, for the same. ``./`` in front is fine.
2. An entry is a file or a directory. Links, devices, pipes and sparse files are refused, not skipped: an archive
   that holds one is not what its sender thinks it is.
3. Files are created (never opened if there), without the archive's owners, modes and times.
4. Limits hold while bytes come out, whatever the archive says of itself. Memory stays bounded throughout.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from server.build.entries import ByteBudget, Entry
from server.build.errors import ArchiveTooLarge, ArchiveUnsafe, NotAnArchive, NotASavedModel
from server.build.limits import ArchiveLimits
from server.build.targz import read_tar_gz
from server.build.zipped import read_zip

__all__ = ["extract_saved_model"]

SAVED_MODEL_FILE = "saved_model.pb"

_GZIP = b"\x1f\x8b"
#: A zip with entries, and one without.
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")

#: What Linux's file systems take for one name.
_MAX_NAME_BYTES = 255


def extract_saved_model(archive: Path, destination: Path, *, limits: ArchiveLimits | None = None) -> Path:
    """Unpack ``archive`` into ``destination``, made if missing, and return the directory with ``saved_model.pb``.

    The format is told from the contents, not from the file's name. What was unpacked before an error stays: the
    caller throws the directory away.
    Errors: NotAnArchive; ArchiveDamaged; ArchiveUnsafe; ArchiveTooLarge; NotASavedModel; OSError from the disk.
    """
    limits = limits or ArchiveLimits()
    destination.mkdir(parents=True, exist_ok=True)
    with archive.open("rb") as file:
        magic = file.read(4)
    budget = ByteBudget(packed_bytes=archive.stat().st_size, limits=limits)
    if magic.startswith(_GZIP):
        entries = read_tar_gz(archive, budget)
    elif magic in _ZIP:
        entries = read_zip(archive, budget, limits)
    else:
        raise NotAnArchive(
            "the file is neither a .tar.gz nor a .zip: pack the directory that tf.saved_model.save wrote, "
            "for example with: tar czf model.tar.gz -C DIRECTORY ."
        )
    with closing(entries):
        _write(entries, destination, limits)
    return find_saved_model(destination)


def find_saved_model(directory: Path) -> Path:
    """Return the one SavedModel that is ``directory`` or directly in it. Errors: NotASavedModel."""
    candidates = (directory, *sorted(entry for entry in directory.iterdir() if entry.is_dir()))
    found = [candidate for candidate in candidates if (candidate / SAVED_MODEL_FILE).is_file()]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(repr(candidate.relative_to(directory).as_posix()) for candidate in found)
        raise NotASavedModel(f"the archive holds {len(found)} SavedModels ({names}): pack one")
    entries = sorted(entry.name for entry in directory.iterdir())
    seen = ", ".join(repr(name) for name in entries[:5]) + (", ..." if len(entries) > 5 else "")
    raise NotASavedModel(
        f"the archive has no {SAVED_MODEL_FILE} at its top or one directory down (it has {seen or 'nothing'}): "
        "pack the directory that tf.saved_model.save wrote"
    )


def _write(entries: Iterator[Entry], destination: Path, limits: ArchiveLimits) -> None:
    made = _Made()
    for count, entry in enumerate(entries, start=1):
        if max(count, len(made.entries)) > limits.max_entries:
            raise ArchiveTooLarge(f"the archive has more than max_entries = {limits.max_entries} entries")
        parts = _checked_parts(entry.name, limits)
        for depth in range(1, len(parts) + entry.is_directory):
            if made.add(parts[:depth], entry.name, is_directory=True):
                _make_directory(destination.joinpath(*parts[:depth]), entry.name)
        if entry.is_directory:
            continue
        if not parts:
            raise ArchiveUnsafe(f"entry {entry.name!r} of the archive is a file without a name")
        made.add(parts, entry.name, is_directory=False)
        _write_file(destination.joinpath(*parts), entry)


class _Made:
    """What was made so far, as the coarsest reader would find it: by paths without case and in one normal form."""

    def __init__(self) -> None:
        #: By what a path is found by: the path as it was written first, and whether it is a directory.
        self.entries: dict[tuple[str, ...], tuple[tuple[str, ...], bool]] = {}

    def add(self, parts: tuple[str, ...], name: str, *, is_directory: bool) -> bool:
        """Return whether it is to be made; a directory that was is not. Errors: ArchiveUnsafe."""
        key = tuple(unicodedata.normalize("NFKC", part).casefold() for part in parts)
        if key not in self.entries:
            self.entries[key] = parts, is_directory
            return True
        written, was_directory = self.entries[key]
        if written != parts:
            raise ArchiveUnsafe(
                f"entry {name!r} of the archive differs from {'/'.join(written)!r} in case or form of characters alone"
            )
        if is_directory and not was_directory:
            raise ArchiveUnsafe(f"entry {name!r} of the archive needs a directory where a file came before")
        if not is_directory:
            raise ArchiveUnsafe(f"entry {name!r} comes twice in the archive")
        return False


def _make_directory(path: Path, name: str) -> None:
    try:
        path.mkdir()
    except FileExistsError as error:
        raise ArchiveUnsafe(f"entry {name!r} of the archive was there before it was unpacked") from error


def _write_file(path: Path, entry: Entry) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError as error:
        raise ArchiveUnsafe(f"entry {entry.name!r} of the archive was there before it was unpacked") from error
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        for chunk in entry.chunks:
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]


def _checked_parts(name: str, limits: ArchiveLimits) -> tuple[str, ...]:
    """Return the path's names, none for the archive's own top. Errors: ArchiveUnsafe; ArchiveTooLarge."""
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ArchiveUnsafe(f"path {name!r} in the archive is not UTF-8") from error
    if len(encoded) > limits.max_path_bytes:
        raise ArchiveTooLarge(
            f"a path in the archive has {len(encoded)} bytes, over max_path_bytes = {limits.max_path_bytes}: "
            f"{name[:60]!r}..."
        )
    if name.startswith("/"):
        raise ArchiveUnsafe(f"path {name!r} in the archive is absolute")
    if "\\" in name or any(ord(char) < 32 or ord(char) == 127 for char in name):
        raise ArchiveUnsafe(f"path {name!r} in the archive has a backslash or a control character")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ArchiveUnsafe(f"path {name!r} in the archive climbs out of it")
    if len(parts) - 1 > limits.max_depth:
        raise ArchiveTooLarge(
            f"path {name[:60]!r} in the archive is {len(parts) - 1} directories deep, over max_depth = "
            f"{limits.max_depth}"
        )
    for part in parts:
        if len(part.encode("utf-8")) > _MAX_NAME_BYTES:
            raise ArchiveTooLarge(f"a name in the archive has over {_MAX_NAME_BYTES} bytes: {part[:60]!r}...")
    return parts

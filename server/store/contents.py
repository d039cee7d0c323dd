"""What an artifact consists of: its files by path, each with its size and SHA-256.

It is written beside the artifact when that is committed, goes with it where it is copied to, and is what it is verified
by. A path is relative, with ``/`` between its parts, and cannot climb: contents may come from outside.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.store.errors import StoreDamaged

__all__ = ["Contents", "FileDigest", "digest_file", "digest_tree", "regular_files"]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")
_MAX_PATH_CHARS = 1_024
#: More files than any artifact has: a record of outside must not fill the memory.
_MAX_FILES = 10_000
_READ_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class FileDigest:
    """What one file holds. ``n_bytes`` tells a file that was cut short at once, ``sha256`` any other."""

    sha256: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of an artifact by their paths."""

    files: Mapping[str, FileDigest]

    @property
    def n_bytes(self) -> int:
        """Bytes of all files, those that are shared with other artifacts too."""
        return sum(file.n_bytes for file in self.files.values())

    @property
    def sha256(self) -> str:
        """One number for all of it: equal for artifacts with the same files, whatever they are called."""
        lines = "".join(f"{file.sha256} {file.n_bytes} {path}\n" for path, file in sorted(self.files.items()))
        return hashlib.sha256(lines.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        files = {path: {"sha256": file.sha256, "bytes": file.n_bytes} for path, file in sorted(self.files.items())}
        return {"sha256": self.sha256, "files": files}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Contents:
        """Build from ``to_json``'s result. Errors: ValueError for anything else, paths that climb above all."""
        files = value.get("files")
        if not isinstance(files, dict) or not 0 < len(files) <= _MAX_FILES:
            raise ValueError(f"'files' must be an object of 1 to {_MAX_FILES} files")
        read: dict[str, FileDigest] = {}
        for path, file in files.items():
            parts = path.split("/")
            is_sound = all(_PART.fullmatch(part) and part not in {".", ".."} for part in parts)
            if len(path) > _MAX_PATH_CHARS or not is_sound:
                raise ValueError(f"path {path[:100]!r} is not one of a file in an artifact")
            if not isinstance(file, dict) or set(file) != {"sha256", "bytes"}:
                raise ValueError(f"file {path[:100]!r} must have 'sha256' and 'bytes'")
            sha256, n_bytes = file["sha256"], file["bytes"]
            if not isinstance(sha256, str) or _SHA256.fullmatch(sha256) is None:
                raise ValueError(f"'sha256' of {path[:100]!r} is no SHA-256 in hexadecimal")
            if not isinstance(n_bytes, int) or isinstance(n_bytes, bool) or n_bytes < 0:
                raise ValueError(f"'bytes' of {path[:100]!r} must be a number that isn't negative")
            read[path] = FileDigest(sha256, n_bytes)
        directories = {path[:end] for path in read for end, letter in enumerate(path) if letter == "/"}
        if directories & read.keys():
            raise ValueError(f"{min(directories & read.keys())[:100]!r} is a file and a directory")
        contents = cls(read)
        if value.get("sha256") != contents.sha256:
            raise ValueError("'sha256' is not that of the files that are listed")
        return contents

    def missing(self, directory: Path) -> list[str]:
        """Return a sentence for each file that is not there or not of its size: quick, for nothing is read."""
        faults = []
        for path, file in self.files.items():
            try:
                status = (directory / path).lstat()
            except OSError as error:
                faults.append(f"{path!r} can't be read ({error.strerror})")
                continue
            if not stat.S_ISREG(status.st_mode):
                faults.append(f"{path!r} is no file")
            elif status.st_size != file.n_bytes:
                faults.append(f"{path!r} has {status.st_size} bytes, expected {file.n_bytes}")
        return faults

    def differences(self, directory: Path) -> list[str]:
        """Return a sentence for each file that is not what was written, and for each that is too many: reads all."""
        faults = self.missing(directory)
        if faults:
            return faults
        for path, file in self.files.items():
            try:
                found = digest_file(directory / path)
            except (OSError, StoreDamaged) as error:
                faults.append(f"{path!r} can't be read ({error})")
                continue
            if found != file:
                faults.append(f"{path!r} has the SHA-256 {found.sha256}, expected {file.sha256}")
        faults.extend(
            f"{path!r} was not in it when it was built"
            for path in (str(each.relative_to(directory)) for each in regular_files(directory))
            if path not in self.files
        )
        return faults


def digest_tree(directory: Path) -> Contents:
    """Read all files below a directory.

    Errors: StoreDamaged for a link, pipe or device; OSError.
    """
    return Contents({path.relative_to(directory).as_posix(): digest_file(path) for path in regular_files(directory)})


def digest_file(path: Path) -> FileDigest:
    """Read one file. Errors: StoreDamaged for what is none; OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreDamaged(path, "it is no file")
        digest, n_bytes = hashlib.sha256(), 0
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
            n_bytes += len(chunk)
    return FileDigest(digest.hexdigest(), n_bytes)


def regular_files(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory, sorted. Errors: StoreDamaged for what is neither file nor directory."""
    for entry in sorted(directory.iterdir()):
        mode = entry.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield from regular_files(entry)
        elif stat.S_ISREG(mode):
            yield entry
        else:
            raise StoreDamaged(entry, "it is neither a file nor a directory")

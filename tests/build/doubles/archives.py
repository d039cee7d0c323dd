"""Archives as tests make them, and what it means that one is refused."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from server.build import (
    ArchiveError,
    ArchiveLimits,
)
from server.build.archive import extract_saved_model

MODEL = {"saved_model.pb": b"graph", "variables/variables.index": b"index", "variables/variables.data": b"\0" * 5000}

Pack = Callable[[Path, dict[str, bytes]], Path]


def tar_gz(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], *, form: int = tarfile.PAX_FORMAT) -> Path:
    """Write a .tar.gz of exactly these headers."""
    with tarfile.open(path, "w:gz", format=form) as tar:
        for info, contents in members:
            info.size = len(contents) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(contents))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    return info


def pack_tar(path: Path, files: dict[str, bytes]) -> Path:
    return tar_gz(path, [(member(name), contents) for name, contents in files.items()])


def pack_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents in files.items():
            archive.writestr(name, contents)
    return path


def refuse(kind: type[ArchiveError], sentence: str, archive: Path, limits: ArchiveLimits | None = None) -> None:
    """Check that the archive is refused, and that nothing was written outside of its directory."""
    destination = archive.parent / "inside" / "unpacked"
    with pytest.raises(kind, match=sentence):
        extract_saved_model(archive, destination, limits=limits)
    around = {entry.name for entry in archive.parent.iterdir()} | {entry.name for entry in destination.parent.iterdir()}
    assert around <= {archive.name, "inside", "unpacked"}
    for directory, directories, files in os.walk(destination):
        for name in (*directories, *files):
            mode = Path(directory, name).lstat().st_mode
            assert stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }

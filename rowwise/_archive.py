"""A SavedModel directory as one file to upload."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

from rowwise.errors import CannotLoad

__all__ = ["pack"]

#: Weights hardly shrink; graphs do at any level. Level 1 packs 100 MB of weights in 2 s, level 6 in 5 s.
_COMPRESSION = 1


def pack(saved_model: Path, archive: Path) -> Path:
    """Write the files below ``saved_model`` into ``archive`` (.tar.gz), ``saved_model.pb`` at its top.

    The same files give the same bytes. Links are followed, as a server takes none. Errors: CannotLoad.
    """
    try:
        with (
            archive.open("wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_COMPRESSION, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as tar,
        ):
            for path in sorted(saved_model.rglob("*")):
                if path.is_file():
                    with path.open("rb") as content:
                        entry = tarfile.TarInfo(path.relative_to(saved_model).as_posix())
                        entry.size = path.stat().st_size
                        entry.mode = 0o644
                        tar.addfile(entry, content)
    except OSError as error:
        raise CannotLoad(f"{saved_model} could not be packed: {error}") from error
    return archive

"""One version as one file, to be carried to another store: a tar that says what is in it.

::

    rowwise.json         {"format_version": 1, "model": ..., "version": ..., "created_at": ..., "spec": {...},
                          "contents": {...}}: first, so that what follows is held to it as it comes
    blobs/<sha256>       each file of ``contents`` once, in the order of its paths, and no others

Files are named by what they hold, so that names are short, plain and known: any ``tar`` reads it, and what comes in
can't climb, and needs none of tar's extended headers, which are refused.

What comes in is not trusted. It must have the sizes and hashes that it announces, no more bytes than the file has
and the quotas allow, and becomes a version at one moment, after all of it was compared. That its graph may be served is
for the engine to say, which checks it when it is loaded.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from server.artifact import Manifest
from server.spec import MODEL_NAME, ModelSpec
from server.store.contents import Contents, FileDigest
from server.store.durable import Disk
from server.store.errors import ImportRefused, StoreDamaged, unwritable
from server.store.records import VersionRecord
from server.store.store import Store

__all__ = ["Announced", "export_version", "import_version"]

FORMAT_VERSION = 1
HEAD_FILE = "rowwise.json"
_MAX_HEAD_BYTES = 16 * 2**20
_MAX_DATE_CHARS = 40
_BLOCK_BYTES = 512
_READ_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What ``rowwise.json`` says of the version that follows."""

    model: str
    version: int
    created_at: str
    spec: dict[str, Any]
    contents: Contents

    @property
    def blobs(self) -> dict[str, int]:
        """The bytes of each blob that follows, in its order."""
        return {file.sha256: file.n_bytes for _, file in sorted(self.contents.files.items())}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "format_version": FORMAT_VERSION,
            "model": self.model,
            "version": self.version,
            "created_at": self.created_at,
            "spec": self.spec,
            "contents": self.contents.to_json(),
        }

    @classmethod
    def read(cls, text: bytes) -> Announced:
        """Read what came from outside. Errors: ImportRefused."""
        try:
            value = json.loads(text)
            if value["format_version"] != FORMAT_VERSION:
                raise ImportRefused(f"it is of format {value['format_version']!r}, this release reads {FORMAT_VERSION}")
            model, version, created_at, spec = (value[key] for key in ("model", "version", "created_at", "spec"))
            if not isinstance(model, str) or MODEL_NAME.fullmatch(model) is None:
                raise ImportRefused(f"its model's name {str(model)[:100]!r} may not be used")
            if not isinstance(version, int) or not isinstance(created_at, str) or len(created_at) > _MAX_DATE_CHARS:
                raise ImportRefused("its version or date is none")
            ModelSpec.model_validate(spec)
            contents = Contents.from_json(value["contents"])
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise ImportRefused(f"{HEAD_FILE} can't be read: {error!r:.300}") from error
        return cls(model=model, version=version, created_at=created_at, spec=spec, contents=contents)


class Exporting(Protocol):
    """What a version is read from: a store in a directory, or one in a bucket."""

    def record(self, name: str, version: int) -> VersionRecord:
        """Return one version."""

    def files(self, name: str, version: int) -> Contents:
        """Return the files of a built version."""

    def spec(self, name: str, version: int) -> dict[str, Any]:
        """Read the registration's options."""

    def pieces(self, name: str, version: int, path: str) -> Iterator[bytes]:
        """Read one of a version's files."""


def export_version(view: Exporting, name: str, version: int, target: Path) -> Announced:
    """Write a version into a new file, which is there whole or not at all.

    Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built; StoreDamaged if it is not what was built;
        FileExistsError; StoreUnwritable.
    """
    record, contents = view.record(name, version), view.files(name, version)
    announced = Announced(
        model=name,
        version=version,
        created_at=record.created_at,
        spec=view.spec(name, version),
        contents=contents,
    )
    if target.exists():
        raise FileExistsError(f"{str(target)!r} is there already: name another file")
    paths = {file.sha256: path for path, file in contents.files.items()}
    new = target.with_name(f".new-{target.name}")
    try:
        with new.open("xb") as file:
            head = json.dumps(announced.to_json(), indent=1).encode()
            _begin(file, HEAD_FILE, len(head))
            file.write(head)
            _end(file, len(head))
            for sha256, n_bytes in announced.blobs.items():
                _begin(file, f"blobs/{sha256}", n_bytes)
                found = _copy(view.pieces(name, version, paths[sha256]), file)
                if found != FileDigest(sha256, n_bytes):
                    raise StoreDamaged(paths[sha256], "it is not what was built; `rowwise store verify` says more")
                _end(file, n_bytes)
            file.write(bytes(2 * _BLOCK_BYTES))
        disk = Disk()
        disk.sync_file(new)
        disk.move(new, target)
    except OSError as error:
        raise unwritable(repr(str(target)), error) from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)
    return announced


def import_version(store: Store, source: Path, *, name: str | None = None) -> VersionRecord:
    """Add the version that a file holds, under the next number of its model, or of ``name``; it does not serve by that.

    Errors: ImportRefused where the file is not what it says; InvalidName; QuotaExceeded; StoreUnwritable.
    """
    try:
        with source.open("rb") as file:
            announced = _announced(file)
            # A file that is in it under several names is in the tar once; ten thousand of them would fill the disk.
            if announced.contents.n_bytes > 2 * source.stat().st_size + _MAX_HEAD_BYTES:
                raise ImportRefused("it announces more bytes than it has")
            return _import(store, file, announced, name or announced.model)
    except OSError as error:
        raise ImportRefused(f"{str(source)!r} can't be read ({error.strerror})") from error


def _announced(file: IO[bytes]) -> Announced:
    head, n_bytes = _header(file)
    if head != HEAD_FILE or n_bytes > _MAX_HEAD_BYTES:
        raise ImportRefused(f"it does not begin with {HEAD_FILE}: `rowwise store export` writes what can be imported")
    announced = Announced.read(_exactly(file, n_bytes))
    _skip_padding(file, n_bytes)
    return announced


def _import(store: Store, file: IO[bytes], announced: Announced, name: str) -> VersionRecord:
    store.check_room(name, announced.contents)
    scratch = store.scratch_dir()
    try:
        artifact = scratch / "artifact"
        artifact.mkdir()
        paths: dict[str, list[str]] = {}
        for path, digest in sorted(announced.contents.files.items()):
            paths.setdefault(digest.sha256, []).append(path)
        for sha256, n_bytes in announced.blobs.items():
            _take(file, sha256, n_bytes, [artifact / path for path in paths[sha256]])
        _check_manifest(artifact)
        return store.add(name, announced.spec, artifact, created_at=announced.created_at, expected=announced.contents)
    except StoreDamaged as error:
        raise ImportRefused(str(error)) from error
    except OSError as error:
        raise unwritable(repr(str(scratch)), error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _take(file: IO[bytes], sha256: str, n_bytes: int, targets: list[Path]) -> None:
    """Write the next blob to each of its places."""
    if _header(file) != (f"blobs/{sha256}", n_bytes):
        raise ImportRefused(f"blob {sha256} of {n_bytes} bytes does not follow where it is announced")
    for target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
    with targets[0].open("xb") as first:
        found = _copy(_pieces(file, n_bytes), first)
    if found.n_bytes != n_bytes:
        raise ImportRefused("it was cut short")
    if found.sha256 != sha256:
        raise ImportRefused(f"a file has the SHA-256 {found.sha256}, announced is {sha256}")
    _skip_padding(file, n_bytes)
    for target in targets[1:]:
        shutil.copyfile(targets[0], target)


def _check_manifest(artifact: Path) -> None:
    try:
        Manifest.read(artifact)
    except (OSError, ValueError, RecursionError) as error:
        raise ImportRefused(f"its model.json is none: {error}") from error


def _begin(file: IO[bytes], name: str, n_bytes: int) -> None:
    """Write a header: equal for equal contents, so without times and users."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = n_bytes, 0o644
    file.write(member.tobuf(tarfile.GNU_FORMAT))


def _end(file: IO[bytes], n_bytes: int) -> None:
    file.write(bytes(-n_bytes % _BLOCK_BYTES))


def _header(file: IO[bytes]) -> tuple[str, int]:
    """Read a header: the name of a plain file, and its bytes."""
    block = _exactly(file, _BLOCK_BYTES)
    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise ImportRefused(f"it is no tar, or ends too early: {error}") from error
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.size < 0:
        raise ImportRefused(f"{member.name[:100]!r} in it is no plain file")
    return member.name, member.size


def _exactly(file: IO[bytes], n_bytes: int) -> bytes:
    data = file.read(n_bytes)
    if len(data) < n_bytes:
        raise ImportRefused("it was cut short")
    return data


def _skip_padding(file: IO[bytes], n_bytes: int) -> None:
    _exactly(file, -n_bytes % _BLOCK_BYTES)


def _pieces(source: IO[bytes], n_bytes: int) -> Iterator[bytes]:
    """Read at most so many bytes."""
    while n_bytes and (piece := source.read(min(_READ_BYTES, n_bytes))):
        yield piece
        n_bytes -= len(piece)


def _copy(pieces: Iterable[bytes], target: IO[bytes]) -> FileDigest:
    """Write pieces, and return what they were."""
    digest, n_bytes = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        target.write(piece)
        n_bytes += len(piece)
    return FileDigest(digest.hexdigest(), n_bytes)

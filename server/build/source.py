"""Where a registration's function comes from: what the web layer hands over and the builder takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["ArchiveSource", "ImportSource", "Source", "source_from_json"]


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """An uploaded archive: the file at ``path``. ``filename`` is the caller's name for it, good for messages only."""

    #: Whether building it runs Python that the caller wrote.
    is_callers_code: ClassVar[bool] = False

    path: Path
    filename: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; ``source_from_json`` takes them back."""
        return {"kind": "archive", "path": str(self.path), "filename": self.filename}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ArchiveSource:
        """Build from ``to_json``'s result. Errors: KeyError."""
        return cls(path=Path(value["path"]), filename=str(value["filename"]))


@dataclass(frozen=True, slots=True)
class ImportSource:
    """A function that the builder imports, of a package that the operator chose. ``target`` is ``MODULE:FUNCTION``."""

    is_callers_code: ClassVar[bool] = False

    target: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; ``source_from_json`` takes them back."""
        return {"kind": "import", "target": self.target}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ImportSource:
        """Build from ``to_json``'s result. Errors: KeyError."""
        return cls(target=str(value["target"]))


Source = ArchiveSource | ImportSource


def source_from_json(value: Mapping[str, Any]) -> Source:
    """Build the source that ``to_json`` wrote. Errors: KeyError; ValueError for a kind that is not known."""
    match value["kind"]:
        case "archive":
            return ArchiveSource.from_json(value)
        case "import":
            return ImportSource.from_json(value)
        case kind:
            raise ValueError(f"source kind {kind!r} is unknown: expected 'archive' or 'import'")

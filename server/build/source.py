"""Where a registration's function comes from: what the web layer hands over and the builder takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["SOURCE_FILE", "ArchiveSource", "ImportSource", "Source", "TextSource", "source_from_json"]

#: What source text is called, in messages and beside an artifact that was built from it.
SOURCE_FILE = "source.py"


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """An uploaded archive: the file at ``path``. ``filename`` is the caller's name for it, good for messages only."""

    #: Whether building it runs Python that the caller wrote.
    is_callers_code: ClassVar[bool] = False

    path: Path
    filename: str

    @property
    def upload(self) -> Path | None:
        """The file that came with it, which the store takes over."""
        return self.path

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

    @property
    def upload(self) -> Path | None:
        """Nothing was uploaded."""
        return None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; ``source_from_json`` takes them back."""
        return {"kind": "import", "target": self.target}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ImportSource:
        """Build from ``to_json``'s result. Errors: KeyError."""
        return cls(target=str(value["target"]))


@dataclass(frozen=True, slots=True)
class TextSource:
    """A Python module as text, of which ``function`` is registered. ``path``: its weights, an ``.npz``, or None."""

    is_callers_code: ClassVar[bool] = True

    text: str
    function: str
    path: Path | None = None

    @property
    def upload(self) -> Path | None:
        """The file that came with it, which the store takes over."""
        return self.path

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; ``source_from_json`` takes them back."""
        has_weights = self.path is not None
        where = {"path": str(self.path)} if has_weights else {}
        return {"kind": "text", "text": self.text, "function": self.function, "has_weights": has_weights, **where}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TextSource:
        """Build from ``to_json``'s result. Errors: KeyError."""
        path = Path(value["path"]) if value["has_weights"] else None
        return cls(text=str(value["text"]), function=str(value["function"]), path=path)


Source = ArchiveSource | ImportSource | TextSource


def source_from_json(value: Mapping[str, Any]) -> Source:
    """Build the source that ``to_json`` wrote. Errors: KeyError; ValueError for a kind that is not known."""
    match value["kind"]:
        case "archive":
            return ArchiveSource.from_json(value)
        case "import":
            return ImportSource.from_json(value)
        case "text":
            return TextSource.from_json(value)
        case kind:
            raise ValueError(f"source kind {kind!r} is unknown: expected 'archive', 'import' or 'text'")

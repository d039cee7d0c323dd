"""Where in the user's code an op was made."""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["SourceLines", "source_line"]

_LIBRARY_DIRS = tuple(
    os.path.realpath(sysconfig.get_paths()[key]) + os.sep for key in ("purelib", "platlib", "stdlib", "platstdlib")
)
_OWN_DIR = os.path.realpath(Path(__file__).parent) + os.sep
#: It calls the user's function: frames outside of its own are not the function's.
_TRACER = _OWN_DIR + "trace.py"
_UNKNOWN = "unknown place"


class SourceLines:
    """The places of a restored function's ops, whose graphs have no frames of their own."""

    def __init__(self) -> None:
        #: By the graph's id and the op's name, as TensorFlow may hand out several objects for one op.
        self._places: dict[tuple[int, str], str] = {}
        #: Every graph with a place: as long as it lives, no other graph has its id.
        self._graphs: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, op: Any, place: str) -> None:
        """Say where ``op`` was made."""
        self._graphs[id(op.graph)] = op.graph
        self._places[id(op.graph), op.name] = place

    def get(self, op: Any) -> str | None:
        """Return where ``op`` was made, or None if that is not known."""
        return self._places.get((id(getattr(op, "graph", None)), getattr(op, "name", "")))


def source_line(op: Any, lines: SourceLines | None = None) -> str:
    """Return ``file.py:41`` of the innermost frame of the user's code that made ``op``.

    A graph that was loaded from a SavedModel has no frames: ``lines`` knows its ops' places if the file said
    them. Else the op's name in that graph stands in, which is where a reader of the model has to look.
    """
    place = lines.get(op) if lines is not None else None
    if place is not None:
        return place
    frames = getattr(op, "traceback", None) or ()
    for frame in reversed(list(frames)):
        if _real(frame.filename) == _TRACER:
            break
        if _is_users(frame.filename):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    name = getattr(op, "name", "")
    return f"node {name!r}" if name else _UNKNOWN


@cache
def _real(filename: str) -> str:
    """Every op has dozens of frames, all of them in few files."""
    return os.path.realpath(filename)


def _is_users(filename: str) -> bool:
    return not _real(filename).startswith((*_LIBRARY_DIRS, _OWN_DIR)) and not filename.startswith("<")

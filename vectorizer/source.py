"""Where in the user's code an op was made."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

__all__ = ["source_line"]

_LIBRARY_DIRS = tuple(
    os.path.realpath(sysconfig.get_paths()[key]) + os.sep for key in ("purelib", "platlib", "stdlib", "platstdlib")
)
_OWN_DIR = os.path.realpath(Path(__file__).parent) + os.sep
_UNKNOWN = "unknown place"


def source_line(op: Any) -> str:
    """Return ``file.py:41`` of the innermost frame of the user's code that made ``op``.

    A graph that was loaded from a SavedModel has no frames: then the op's name in that graph stands in, which
    is where a reader of the model has to look.
    """
    frames = getattr(op, "traceback", None) or ()
    for frame in reversed(list(frames)):
        path = os.path.realpath(frame.filename)
        if not path.startswith((*_LIBRARY_DIRS, _OWN_DIR)) and not frame.filename.startswith("<"):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    name = getattr(op, "name", "")
    return f"node {name!r}" if name else _UNKNOWN

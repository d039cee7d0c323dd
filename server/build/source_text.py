"""Functions that are registered as source text: the one place where what a caller wrote is run as Python.

It runs in a builder's process, which is jailed and ends with the build; what it makes is a graph like any other, which
is checked by who loads it. The text becomes a file of its own, so that tracebacks, AutoGraph and certificates have
lines to show: ``source.py:7``.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import traceback
import zipfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from server.build.errors import SourceRefused
from server.build.limits import ArchiveLimits
from server.build.source import SOURCE_FILE

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["Weights", "function_of_text", "read_weights", "written"]

#: By name. In the text they are ``weights["name"]``, variables of TensorFlow (strings are constants).
Weights = dict[str, np.ndarray]

_MODULE = SOURCE_FILE.removesuffix(".py")
#: What TensorFlow takes as a variable's name.
_VARIABLE = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_MOST_WEIGHTS = 10_000


def written(text: str, directory: Path) -> Path:
    """Write the text where it can be imported from. Errors: SourceRefused with the line, if it is no Python."""
    path = directory / SOURCE_FILE
    path.write_text(text, encoding="utf-8")
    try:
        ast.parse(text, filename=SOURCE_FILE)
    except SyntaxError as error:
        line = (error.text or "").strip()
        shown = f": {line[:200]}" if line else ""
        raise SourceRefused(f"{SOURCE_FILE}:{error.lineno or 1}: {error.msg}{shown}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceRefused(f"{SOURCE_FILE} can't be read as Python: {type(error).__name__}: {error}") from None
    return path


def read_weights(path: Path, *, limits: ArchiveLimits | None = None) -> Weights:
    """Read the arrays of an ``.npz``, nothing but numbers and text. Errors: SourceRefused."""
    limits = limits or ArchiveLimits()
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
        if len(entries) > _MOST_WEIGHTS:
            raise SourceRefused(f"the weights are {len(entries)} arrays: {_MOST_WEIGHTS} at most")
        total = sum(entry.file_size for entry in entries)
        if total > limits.max_unpacked_bytes:
            raise SourceRefused(
                f"the weights unpack to {total} bytes, over max_unpacked_bytes = {limits.max_unpacked_bytes}"
            )
        # Pickled objects are programs.
        with np.load(path, allow_pickle=False) as loaded:
            return {str(name): np.asarray(loaded[name]) for name in loaded.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError, NotImplementedError) as error:
        raise SourceRefused(
            f"the weights can't be read as an .npz of arrays (numpy.savez, no objects): {error}"
        ) from error


def function_of_text(path: Path, function: str, weights: Weights) -> tuple[Any, ModuleType]:
    """Run what ``written`` wrote and return its function with its module. TensorFlow is loaded by that.

    Errors: SourceRefused with the caller's own line.
    """
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    assert spec is not None, "it ends in .py"
    assert spec.loader is not None, "it is a file"
    module = importlib.util.module_from_spec(spec)
    module.__dict__["weights"] = {name: _variable(name, value) for name, value in weights.items()}
    sys.modules[_MODULE] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise SourceRefused(f"{_place(error, path)}: {type(error).__name__}: {error}") from error
    found = getattr(module, function, None)
    if not callable(found):
        defined = sorted(name for name, value in vars(module).items() if getattr(value, "__module__", "") == _MODULE)
        raise SourceRefused(
            f"{SOURCE_FILE} defines no function {function!r} (it has {', '.join(defined[:20]) or 'none'}): name it so, "
            "or say its name as 'function'"
        )
    return found, module


def _variable(name: str, value: np.ndarray) -> tf.Variable | tf.Tensor:
    import tensorflow as tf

    if value.dtype.kind in "OUS":
        return tf.constant(value)
    return tf.Variable(value, name=name if _VARIABLE.fullmatch(name) else None)


def _place(error: BaseException, path: Path) -> str:
    """Return the last line of the caller's that an error came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{SOURCE_FILE}:{lines[-1]}" if lines else SOURCE_FILE

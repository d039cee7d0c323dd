"""The files of a SavedModel: the graph, its variables, its assets, and nothing that leads out of the directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from server.graph_checks._tensorflow import SavedModelProto
from server.graph_checks.errors import FilesRefused, GraphDamaged, GraphTooLarge, quoted
from server.graph_checks.limits import GraphLimits

__all__ = ["check_asset", "check_files", "read_graphs"]

_GRAPH = "saved_model.pb"
#: TensorFlow can read a graph from these too, which nobody has looked at then.
_OTHER_GRAPHS = ("saved_model.pbtxt", "saved_model.cpb")
_ASSETS = "assets"


def check_files(directory: Path, limits: GraphLimits) -> None:
    """Errors: FilesRefused for a link, a device or a graph in another form; GraphTooLarge; OSError."""
    for other in _OTHER_GRAPHS:
        if os.path.lexists(directory / other):
            raise FilesRefused(f"the SavedModel has {other} beside {_GRAPH}: leave one graph, as {_GRAPH}")
    for count, (path, mode) in enumerate(_entries(directory), start=1):
        if count > limits.max_files:
            raise GraphTooLarge(f"the SavedModel has over max_files = {limits.max_files} files")
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            name = path.relative_to(directory).as_posix()
            raise FilesRefused(f"{quoted(name)} in the SavedModel is neither a file nor a directory: put a file there")


def _entries(directory: Path) -> Iterator[tuple[Path, int]]:
    waiting = [directory]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                mode = entry.stat(follow_symlinks=False).st_mode
                yield Path(entry.path), mode
                if stat.S_ISDIR(mode):
                    waiting.append(Path(entry.path))


def read_graphs(directory: Path, limits: GraphLimits) -> Any:
    """Read ``saved_model.pb``. Errors: GraphDamaged; GraphTooLarge; OSError."""
    path = directory / _GRAPH
    size_bytes = path.stat().st_size
    if size_bytes > limits.max_graph_bytes:
        raise GraphTooLarge(
            f"{_GRAPH} has {size_bytes} bytes, over max_graph_bytes = {limits.max_graph_bytes}: keep weights in "
            "variables, not in constants"
        )
    saved_model = SavedModelProto()
    try:
        saved_model.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's DecodeError, which only protobuf itself exports
        raise GraphDamaged(f"{_GRAPH} can't be read: {error}") from error
    if not saved_model.meta_graphs:
        raise GraphDamaged(f"{_GRAPH} holds no graph; save the model again with tf.saved_model.save")
    return saved_model


def check_asset(directory: Path, name: str) -> None:
    """Errors: FilesRefused if it is not the name of a file that is among the SavedModel's assets."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or any(char in name for char in "\\:\0"):
        raise FilesRefused(f"asset {quoted(name)} leads out of the directory of assets: name a file in it")
    path = directory / _ASSETS
    for part in parts:
        path = path / part
        # check_files has refused links in the directory, but an asset's name may also be that of a directory.
    try:
        is_file = stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        is_file = False
    if not is_file:
        raise FilesRefused(f"asset {quoted(name)} is no file in the directory {_ASSETS} of the SavedModel: add it")

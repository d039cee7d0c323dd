"""What a SavedModel still knows of the user's code: the function's own name, and the line of each op.

Theory of operation. ``tf.saved_model.save`` can write ``debug/saved_model_debug_info.pb``, which holds the frames in
which each op was made, by the names of the op and of the function that it is in. ``tf.saved_model.load`` does not
read it, and gives every function another name. So the functions as they were written and as they were restored are
walked side by side, from the signature down: an op keeps its name in its function, and whatever functions it calls
correspond one to one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vectorizer._pfor import DebugInfoProto, SavedModelProto, graph_by_name
from vectorizer.source import SourceLines

__all__ = ["SavedSource", "keep_user_lines", "saved_source"]

_MODEL_FILE = "saved_model.pb"
_DEBUG_FILE = Path("debug", "saved_model_debug_info.pb")
#: Frames of these are no user's, wherever the model was written.
_LIBRARY = re.compile(r"^<|[/\\](site-packages|dist-packages|lib[/\\]python\d[^/\\]*)[/\\]|[/\\]__autograph_generated")
#: Call the user's function: frames outside of theirs are not the function's.
_TRACERS = re.compile(r"(^|[/\\])(vectorizer[/\\]trace|rowwise[/\\]_trace)\.py$")
#: A file name longer than file systems take is none.
_MAX_NAME_CHARS = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSource:
    """The user's function behind a signature: its ``name``, and the ``lines`` of its restored ops."""

    name: str
    lines: SourceLines


def saved_source(saved_model: Path, signature: str, restored: Any) -> SavedSource:
    """Return what the directory ``saved_model`` knows of the function ``restored`` from its ``signature``.

    The name is the alias that the file gives to the function or to one that it calls, else the signature's key.
    A file without debug information has no lines. ``restored`` has been loaded from the same directory, so what
    can't be read has been refused by TensorFlow before.
    """
    lines = SourceLines()
    meta_graph = _meta_graph(saved_model)
    written = _written_function(meta_graph, signature)
    library = {function.signature.name: function for function in meta_graph.graph_def.library.function}
    if written not in library:
        return SavedSource(name=signature, lines=lines)
    places = _places(_debug_info(saved_model))
    aliases = meta_graph.meta_info_def.function_aliases
    names = []
    for function, graph in _side_by_side(library, written, restored.graph):
        if function in aliases:
            names.append(aliases[function])
        for op in graph.get_operations():
            place = places.get((op.name, function))
            if place is not None:
                lines.add(op, place)
    return SavedSource(name=next(iter(names), signature), lines=lines)


def keep_user_lines(saved_model: Path) -> None:
    """Reduce the debug information of a SavedModel to file names and lines of the user's own code.

    What TensorFlow writes names every file of the stack with its full path. Errors: OSError.
    """
    file = saved_model / _DEBUG_FILE
    if not file.exists():
        return
    kept = DebugInfoProto()
    ids: dict[str, int] = {}
    for (node, function), place in sorted(_places(_debug_info(saved_model)).items()):
        name, _, line = place.rpartition(":")
        if place not in ids:
            ids[place] = len(ids) + 1
            if name not in kept.files:
                kept.files.append(name)
            frame = kept.frames_by_id[ids[place]]
            frame.file_index, frame.line = list(kept.files).index(name), int(line)
            kept.traces_by_id[ids[place]].frame_id.append(ids[place])
        kept.name_to_trace_id[f"{node}@{function}"] = ids[place]
    file.write_bytes(kept.SerializeToString(deterministic=True))


def _meta_graph(saved_model: Path) -> Any:
    model = SavedModelProto()
    model.ParseFromString((saved_model / _MODEL_FILE).read_bytes())
    return model.meta_graphs[0]


def _debug_info(saved_model: Path) -> Any:
    file = saved_model / _DEBUG_FILE
    info = DebugInfoProto()
    if file.exists():
        info.ParseFromString(file.read_bytes())
    return info


def _written_function(meta_graph: Any, signature: str) -> str:
    """Return the name that the signature's function had in the file, or an empty one."""
    nodes = meta_graph.object_graph_def.nodes
    node = 0
    for step in ("signatures", signature):
        children = {child.local_name: child.node_id for child in nodes[node].children} if node < len(nodes) else {}
        if step not in children:
            return ""
        node = children[step]
    return str(nodes[node].bare_concrete_function.concrete_function_name)


def _side_by_side(library: Mapping[str, Any], written: str, restored: Any) -> Iterator[tuple[str, Any]]:
    """Yield each function that ``written`` reaches, by its name in the file, with its restored graph."""
    seen: set[tuple[str, int]] = set()
    waiting = [(written, restored)]
    while waiting:
        function, graph = waiting.pop()
        if (function, id(graph)) in seen:
            continue
        seen.add((function, id(graph)))
        yield function, graph
        ops = {op.name: op for op in graph.get_operations()}
        for node in library[function].node_def:
            called = list(_called(node))
            if not called or node.name not in ops:
                continue
            op = ops[node.name]
            for before, after in zip(called, _called(op.node_def), strict=True):
                if before in library:
                    waiting.append((before, graph_by_name(op, after)))


def _called(node: Any) -> Iterator[str]:
    for name in sorted(node.attr):
        value = node.attr[name]
        # Attributes of registrations name functions that the node does not call.
        if name.startswith("_"):
            continue
        if value.WhichOneof("value") == "func":
            yield value.func.name
        elif value.WhichOneof("value") == "list":
            yield from (each.name for each in value.list.func)


def _places(info: Any) -> dict[tuple[str, str], str]:
    """Return ``file.py:41`` by op and function."""
    by_trace = {number: _place(info, trace) for number, trace in info.traces_by_id.items()}
    traced = {name: by_trace.get(number) for name, number in info.name_to_trace_id.items()}
    # As TensorFlow wrote it before 2.13.
    traced.update((name, _place(info, trace)) for name, trace in info.traces.items())
    places = {}
    for name, place in traced.items():
        node, at, function = name.rpartition("@")
        if at and place is not None:
            places[node, function] = place
    return places


def _place(info: Any, trace: Any) -> str | None:
    """Return the innermost frame of the user's code."""
    frames = [info.frames_by_id[number] for number in trace.frame_id if number in info.frames_by_id]
    for frame in reversed(frames or list(trace.file_line_cols)):
        if not 0 <= frame.file_index < len(info.files):
            continue
        path = info.files[frame.file_index]
        if _TRACERS.search(path):
            return None
        if not _LIBRARY.search(path):
            name = re.split(r"[/\\]", path)[-1]
            return f"{name}:{frame.line}" if name.isprintable() and 0 < len(name) <= _MAX_NAME_CHARS else None
    return None

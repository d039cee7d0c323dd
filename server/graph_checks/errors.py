"""Why a graph is not loaded.

::

    RowwiseError
    └── GraphRefused
        ├── FilesRefused        links, other files in place of the graph, assets outside of the archive
        ├── FileNameRefused     an op that reads or writes a file whose name TensorFlow's loader does not give
        ├── GraphDamaged        it contradicts itself, or can't be read
        ├── GraphTooLarge       more nodes, calls, constants or variables than a limit allows
        ├── OpRefused           an op, or an attribute of one, that no served model may hold
        └── UnknownOp           an op, or a version of one, that this TensorFlow does not have

Names in a graph are the sender's: they are quoted and cut before they stand in a sentence.
"""

from __future__ import annotations

from server.errors import RowwiseError

__all__ = [
    "FileNameRefused",
    "FilesRefused",
    "GraphDamaged",
    "GraphRefused",
    "GraphTooLarge",
    "OpRefused",
    "UnknownOp",
    "place",
    "quoted",
]

_SHOWN_CHARS = 120


class GraphRefused(RowwiseError):
    """The SavedModel may not be loaded."""


class FilesRefused(GraphRefused):
    """What lies in the directory is not what a SavedModel has."""


class FileNameRefused(GraphRefused):
    """An op would read or write a file that the graph itself chooses."""


class GraphDamaged(GraphRefused):
    """The graph can't be read, or contradicts itself."""


class GraphTooLarge(GraphRefused):
    """The graph is larger than a limit allows. The sentence names the limit."""


class OpRefused(GraphRefused):
    """An op does what no served model may do."""


class UnknownOp(GraphRefused):
    """An op that is not known here, or not in this version."""


def quoted(name: str) -> str:
    """Return a name of the sender's as it may stand in a sentence."""
    return repr(name if len(name) <= _SHOWN_CHARS else name[:_SHOWN_CHARS] + "...")


def place(node: str, function: str) -> str:
    """Say where a node is; ``function`` is empty for the main graph."""
    return f"node {quoted(node)} of {f'function {quoted(function)}' if function else 'the main graph'}"

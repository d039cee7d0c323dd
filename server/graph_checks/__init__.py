"""Graphs are programs: what a SavedModel would do is read from its files before TensorFlow loads it.

The builder checks an upload, the engine every artifact, by the same rules. ``check`` walks every node of every
function, used or not; ``ops.toml`` is the allow-list. Importing this package does not import TensorFlow; ``check``
does, for its messages and its list of ops, and loads nothing.
"""

from __future__ import annotations

from server.graph_checks.errors import (
    FileNameRefused,
    FilesRefused,
    GraphDamaged,
    GraphRefused,
    GraphTooLarge,
    OpRefused,
    UnknownOp,
)
from server.graph_checks.limits import GraphLimits

__all__ = [
    "FileNameRefused",
    "FilesRefused",
    "GraphDamaged",
    "GraphLimits",
    "GraphRefused",
    "GraphTooLarge",
    "OpRefused",
    "UnknownOp",
]

"""Why the engine can't load or run an artifact.

::

    RowwiseError
    └── EngineError
        ├── ArtifactRefused    damaged, of another format, or without a graph that it promises
        └── LoadFailed         TensorFlow could not load it, or a bucket failed when it was warmed
"""

from __future__ import annotations

from server.errors import RowwiseError

__all__ = ["ArtifactRefused", "EngineError", "LoadFailed"]


class EngineError(RowwiseError):
    """The engine could not do what was asked of it."""


class ArtifactRefused(EngineError):
    """The artifact is not what its manifest says, or its manifest can't be read."""


class LoadFailed(EngineError):
    """TensorFlow failed on the artifact."""

"""Executes artifacts: sessions, staging memory, the thread.

Importing it does not import TensorFlow; loading a model does.
"""

from __future__ import annotations

from server.engine.errors import ArtifactRefused, EngineError, LoadFailed
from server.engine.executor import EngineThread
from server.engine.model import GroupRunner, LoadedModel
from server.engine.pool import EnginePool
from server.engine.staging import Staging

__all__ = [
    "ArtifactRefused",
    "EngineError",
    "EnginePool",
    "EngineThread",
    "GroupRunner",
    "LoadFailed",
    "LoadedModel",
    "Staging",
]

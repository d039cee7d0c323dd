"""The builder: a registration becomes an artifact in a process of its own, under limits.

What runs in the server is here. The worker's side (``worker``, ``compile``, ``declaration``, ``measure``) imports
TensorFlow and is imported by the worker alone.
"""

from __future__ import annotations

from server.build.errors import (
    ArchiveDamaged,
    ArchiveError,
    ArchiveTooLarge,
    ArchiveUnsafe,
    BuildCrashed,
    BuildError,
    BuildFailed,
    BuildMemoryExceeded,
    BuildTimeout,
    NotAnArchive,
    NotASavedModel,
    SourceRefused,
)
from server.build.limits import ArchiveLimits, BuildLimits
from server.build.request import BuildRequest, Progress
from server.build.source import ArchiveSource, ImportSource
from server.build.supervisor import Builder

__all__ = [
    "ArchiveDamaged",
    "ArchiveError",
    "ArchiveLimits",
    "ArchiveSource",
    "ArchiveTooLarge",
    "ArchiveUnsafe",
    "BuildCrashed",
    "BuildError",
    "BuildFailed",
    "BuildLimits",
    "BuildMemoryExceeded",
    "BuildRequest",
    "BuildTimeout",
    "Builder",
    "ImportSource",
    "NotASavedModel",
    "NotAnArchive",
    "Progress",
    "SourceRefused",
]

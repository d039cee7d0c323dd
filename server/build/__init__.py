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
    BuildDiskExceeded,
    BuildError,
    BuildFailed,
    BuildMemoryExceeded,
    BuildTimeout,
    JailIncomplete,
    NotAnArchive,
    NotASavedModel,
    SourceRefused,
)
from server.build.jailing import BuildJail, JailPolicy
from server.build.limits import ArchiveLimits, BuildLimits
from server.build.request import BuildRequest, Progress
from server.build.source import ArchiveSource, ImportSource, Source, TextSource
from server.build.supervisor import Builder, builder_environment

__all__ = [
    "ArchiveDamaged",
    "ArchiveError",
    "ArchiveLimits",
    "ArchiveSource",
    "ArchiveTooLarge",
    "ArchiveUnsafe",
    "BuildCrashed",
    "BuildDiskExceeded",
    "BuildError",
    "BuildFailed",
    "BuildJail",
    "BuildLimits",
    "BuildMemoryExceeded",
    "BuildRequest",
    "BuildTimeout",
    "Builder",
    "ImportSource",
    "JailIncomplete",
    "JailPolicy",
    "NotASavedModel",
    "NotAnArchive",
    "Progress",
    "Source",
    "SourceRefused",
    "TextSource",
    "builder_environment",
]

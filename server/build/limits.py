"""How much one registration may take of the machine."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["ArchiveLimits", "BuildLimits"]

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """What an uploaded archive may unpack to. Messages name the field that was passed, and its value."""

    #: Bytes of everything that comes out, headers included. Four times the largest upload by default.
    max_unpacked_bytes: int = 8192 * _MIB
    #: Entries, directories included. A SavedModel has about five, and one for each asset.
    max_entries: int = 10_000
    #: Bytes out for each byte in, once ``ratio_free_bytes`` are out. Weights hardly compress; deflate ends at 1,032.
    max_ratio: int = 200
    #: What may come out at any ratio: models whose weights start as zeros compress 1,000 to 1.
    ratio_free_bytes: int = 64 * _MIB
    #: UTF-8 bytes of a path. Linux takes 4,096, with the directory it is unpacked in.
    max_path_bytes: int = 1_024
    #: Directories above a file.
    max_depth: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildLimits:
    """What a builder may take, named as in the server's settings."""

    #: Wall-clock seconds of one build, waiting for its turn not counted.
    build_timeout_s: float = 600.0
    #: Resident bytes of the builder and of all processes that it started, together.
    build_memory_bytes: int = 8192 * _MIB
    #: Bytes that a build may have on disk: what it unpacks, its temporary files and what it makes of the model.
    build_disk_bytes: int = 32 * 1024 * _MIB
    #: Processes and threads of one build; those that run at once share what all of them may have, as the kernel counts
    #: for a user. TensorFlow has several pools of as many threads as there are cores.
    build_processes: int = 512 + 32 * (os.cpu_count() or 1)
    #: Builds that run at once; more wait their turn, first come first served.
    concurrent_builds: int = 1
    #: Added to the server's own niceness. 10 of 19: about a tenth of the time of a serving thread on the same core.
    build_niceness: int = 10
    #: Seconds between two looks at the builder's memory.
    memory_interval_s: float = 0.05
    #: Seconds between two looks at what is on the disk.
    disk_interval_s: float = 0.5
    #: Seconds that a builder has to leave once it has said how it ended. TensorFlow's own teardown takes below one.
    exit_grace_s: float = 5.0

    def __post_init__(self) -> None:
        for name in (
            "build_timeout_s",
            "build_memory_bytes",
            "build_disk_bytes",
            "build_processes",
            "concurrent_builds",
            "memory_interval_s",
        ):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0, got {getattr(self, name)}")

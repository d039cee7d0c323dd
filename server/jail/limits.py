"""How much of the machine a jailed process may take, as far as the kernel counts it by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["JailLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JailLimits:
    """Limits of each process (setrlimit(2)), but for ``processes``, which is of all that the jail's user runs."""

    #: Seconds of processor time. What ends a builder whose server can't.
    cpu_s: float
    #: Bytes that are asked for as memory, used or not. What is used is counted by who started the process.
    memory_bytes: int
    #: Bytes of one file.
    file_bytes: int
    #: Threads count too.
    processes: int
    open_files: int = 4_096

    def to_json(self) -> dict[str, int]:
        """Return the values by the kernel's names for them."""
        return {
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": math.ceil(self.cpu_s),
            "RLIMIT_DATA": self.memory_bytes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_NPROC": self.processes,
        }

"""How much memory an artifact takes where it is served."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vectorizer import Vectorized

__all__ = ["Footprint", "variables_bytes"]


@dataclass(slots=True)
class Footprint:
    """Resident memory that sessions took while they were watched, bytes."""

    resident_bytes: int = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Add by how much this process has grown at the end of the block.

        What was freed before is given back first, or the sessions would fill that without growing the process.
        """
        gc.collect()
        _give_back()
        before = _resident_bytes()
        try:
            yield
        finally:
            self.resident_bytes += max(0, _resident_bytes() - before)


def variables_bytes(vectorized: Vectorized) -> int:
    """Return the size of the function's variables, which all buckets share."""
    return sum(variable.shape.num_elements() * variable.dtype.size for variable in vectorized.function.variables)


def _resident_bytes() -> int:
    """Resident memory of this process. Source: proc(5), VmRSS."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def _give_back() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

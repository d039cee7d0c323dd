"""Values for the optional inputs that a request leaves out: seeds of random numbers."""

from __future__ import annotations

import os

import numpy as np

from server.protocol.rows import Array

__all__ = ["fresh_seed", "fresh_seeds"]


def fresh_seeds(n: int) -> Array:
    """Return seeds that nobody has seen. Shapes: int64 [n]. Source: the system's entropy."""
    return np.frombuffer(os.urandom(8 * n), np.int64)


def fresh_seed() -> int:
    """Return one seed."""
    return int.from_bytes(os.urandom(8), "little", signed=True)

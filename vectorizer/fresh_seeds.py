"""Seeds for callers who give none."""

from __future__ import annotations

import numpy as np

__all__ = ["fresh_seeds"]


def fresh_seeds(n: int) -> np.ndarray:
    """Return seeds that nobody has seen, from the system's entropy. Shapes: int64 [n]."""
    return np.random.default_rng().integers(-(2**63), 2**63, n, dtype=np.int64)

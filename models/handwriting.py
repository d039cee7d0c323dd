"""The data of both digit models: 1,797 real scans of handwritten digits, 8x8 grey values, from scikit-learn.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998.
"""

from __future__ import annotations

import functools

import numpy as np

__all__ = ["images", "labels", "split"]

#: Scans that training never sees: a fifth of them.
N_HELD_OUT = 360


@functools.cache
def _scans() -> tuple[np.ndarray, np.ndarray]:
    # Imported here: it takes a second, and a server that only runs a trained model has no use for it.
    from sklearn.datasets import load_digits

    scans = load_digits()
    # Pixels are counts from 0 to 16.
    return (scans.data / 16).astype(np.float32), scans.target.astype(np.int64)


def images() -> np.ndarray:
    """Return every scan. Shapes: float32 [1797, 64], from 0 (paper) to 1 (ink)."""
    return _scans()[0]


def labels() -> np.ndarray:
    """Return the digit that each scan shows. Shapes: int64 [1797]."""
    return _scans()[1]


def split() -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the scans to train on and of those held out, shuffled the same way each time."""
    order = np.random.default_rng(seed=7).permutation(len(labels()))
    return order[N_HELD_OUT:], order[:N_HELD_OUT]

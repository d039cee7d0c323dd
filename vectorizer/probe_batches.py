"""Probes stacked into full batches, padded as the server does it, or otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from vectorizer.lengths import Axis
from vectorizer.probe_values import garbage
from vectorizer.probes import Probe
from vectorizer.vectorized import Bucket, pad_example, shape_in

__all__ = ["fits", "stack_probes"]


def fits(probe: Probe, bucket: Bucket) -> bool:
    """Return True if the probe is no longer than the bucket's padded lengths."""
    return all(true <= size for true, size in zip(probe.lengths, bucket.lengths, strict=True))


def stack_probes(
    inputs: Mapping[str, tf.TensorSpec],
    axes: Sequence[Axis],
    bucket: Bucket,
    rows: Sequence[Probe],
    *,
    with_garbage: bool = False,
) -> dict[str, np.ndarray]:
    """Return one batch with a probe in each row; ``with_garbage`` pads with other values than zeros.

    Shapes: each input ``[rows, *padded shape]``.
    """
    pad = _pad_with_garbage if with_garbage else pad_example
    return {
        name: np.stack([pad(row.example[name], shape_in(name, spec, axes, bucket)) for row in rows])
        for name, spec in inputs.items()
    }


def _pad_with_garbage(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if value.shape == shape:
        return value
    fill = garbage(value)
    padded = np.array([next(fill) for _ in range(int(np.prod(shape)))], value.dtype).reshape(shape)
    padded[tuple(map(slice, value.shape))] = value
    return padded

"""Training the digit models when they are first needed, and keeping what was learnt.

A network is written once, for one example; ``fit`` maps it over a training batch, so there is no second, batched
copy of it that could disagree with the one that is served.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

__all__ = ["Weights", "cache_dir", "fit", "kept"]

#: Arrays by name.
Weights = dict[str, np.ndarray]

_BATCH = 32
_MOMENTUM = 0.9


def fit(
    network: Callable[[Mapping[str, tf.Tensor], tf.Tensor], tf.Tensor],
    start: Weights,
    inputs: np.ndarray,
    labels: np.ndarray,
    *,
    epochs: int,
    seed: int,
    rate: float = 0.05,
) -> Weights:
    """Train a per-example classifier and return its weights: the same ones for the same seed.

    Stochastic gradient descent with momentum on the cross entropy; the learning rate falls to 0 as a cosine.

    Shapes: inputs [n, *example]; labels int [n]; ``network(weights, example)`` gives the scores of one example.
    """
    with tf.init_scope():
        weights = {name: tf.Variable(value) for name, value in start.items()}
        velocities = {name: tf.Variable(tf.zeros_like(value)) for name, value in start.items()}

    @tf.function  # type: ignore[untyped-decorator]
    def step(batch: tf.Tensor, wanted: tf.Tensor, rate: tf.Tensor) -> None:
        values = {name: weight.read_value() for name, weight in weights.items()}
        scores = tf.vectorized_map(lambda example: network(values, example), batch)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=scores))
        # Not a GradientTape: it records nothing inside tf.init_scope, where models make their variables.
        for name, slope in zip(values, tf.gradients(loss, list(values.values())), strict=True):
            velocities[name].assign(_MOMENTUM * velocities[name] - rate * slope)
            weights[name].assign_add(velocities[name])

    rng = np.random.default_rng(seed)
    n_batches = len(inputs) // _BATCH
    for epoch in range(epochs):
        order = rng.permutation(len(inputs))
        for i in range(n_batches):
            picked = order[i * _BATCH : (i + 1) * _BATCH]
            done = (epoch * n_batches + i) / (epochs * n_batches)
            step(inputs[picked], labels[picked], np.float32(rate * (1 + np.cos(np.pi * done)) / 2))
    return {name: weight.numpy() for name, weight in weights.items()}


def kept(name: str, train: Callable[[], Weights]) -> Weights:
    """Return the weights kept under ``name``; train and keep them if there are none that can be read.

    Change ``name`` whenever the recipe changes, or the old weights stay in use.

    Errors: OSError if they can't be written.
    """
    path = cache_dir() / f"{name}.npz"
    try:
        with path.open("rb") as file, np.load(file) as archive:
            return {key: archive[key] for key in archive.files}
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (EOFError, ValueError, zipfile.BadZipFile, zlib.error):
        pass  # cut short or overwritten by something else: it only costs training again
    weights = train()
    try:
        _write(path, weights)
    except OSError as error:
        raise OSError(
            f"can't keep trained weights as {path} ({error}); set ROWWISE_CACHE to a directory of yours"
        ) from error
    return weights


def _write(path: Path, weights: Weights) -> None:
    """Write beside and rename into place: a reader sees all of the file or none, and the last of two writers wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".npz")
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, allow_pickle=False, **weights)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    except BaseException:
        beside.unlink()
        raise


def cache_dir() -> Path:
    """Return where weights are kept: ``ROWWISE_CACHE``, else ``~/.cache/rowwise``."""
    return Path(os.environ.get("ROWWISE_CACHE") or "~/.cache/rowwise").expanduser()

"""Fully connected networks: Jacobians and gradients of each example."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from benchmarks.paper.configuration import Configuration, normal, variables

__all__ = ["CONFIGURATIONS"]

WIDTH = 32


@functools.cache
def _weights(n_layers: int) -> dict[str, tf.Variable]:
    return variables(
        {
            f"fc{n_layers}_w{layer}": normal(WIDTH, WIDTH, seed=layer, scale=(2 / WIDTH) ** 0.5)
            for layer in range(n_layers)
        }
        | {f"fc{n_layers}_b{layer}": normal(WIDTH, seed=100 + layer, scale=0.1) for layer in range(n_layers)}
    )


def _network(n_layers: int) -> Callable[[tf.Tensor], tf.Tensor]:
    def network(x: tf.Tensor) -> tf.Tensor:
        w = _weights(n_layers)
        for layer in range(n_layers):
            x = tf.nn.relu(tf.tensordot(x, w[f"fc{n_layers}_w{layer}"], 1) + w[f"fc{n_layers}_b{layer}"])
        return x

    return network


def _loss(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.square(_network(3)(x)))


def _batch(n_rows: int) -> Mapping[str, np.ndarray]:
    return {"x": normal(n_rows, WIDTH, seed=1)}


_X = {"x": tf.TensorSpec([WIDTH], tf.float32)}


def _of_three() -> list[tf.Variable]:
    return list(_weights(3).values())


CONFIGURATIONS = (
    Configuration(name="fc_batch_jacobian", rows=100, inputs=_X, function=_network(20), batch=_batch, kind="jacobian"),
    Configuration(
        name="fc_per_example_grad", rows=100, inputs=_X, function=_loss, batch=_batch, kind="gradient", wrt=_of_three
    ),
    Configuration(
        name="fc_per_example_jacobian",
        rows=128,
        inputs=_X,
        function=_network(3),
        batch=_batch,
        kind="jacobian",
        wrt=_of_three,
    ),
)

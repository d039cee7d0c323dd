"""LSTMs, unrolled and as a loop: Jacobians, Hessians and gradients of each example."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from benchmarks.paper.configuration import Configuration, normal, variables

__all__ = ["CONFIGURATIONS"]


@functools.cache
def _weights(units: int) -> dict[str, tf.Variable]:
    return variables(
        {
            f"lstm{units}_kernel": normal(2 * units, 4 * units, seed=2, scale=(2 * units) ** -0.5),
            f"lstm{units}_bias": normal(4 * units, seed=3, scale=0.1),
        }
    )


def _step(x: tf.Tensor, hidden: tf.Tensor, cell: tf.Tensor, units: int) -> tuple[tf.Tensor, tf.Tensor]:
    w = _weights(units)
    gates = tf.tensordot(tf.concat([x, hidden], 0), w[f"lstm{units}_kernel"], 1) + w[f"lstm{units}_bias"]
    keep, write, read, news = tf.split(gates, 4)
    cell = tf.sigmoid(keep + 1.0) * cell + tf.sigmoid(write) * tf.tanh(news)
    return tf.sigmoid(read) * tf.tanh(cell), cell


def _unrolled(units: int, steps: int) -> Callable[[tf.Tensor], tf.Tensor]:
    def network(x: tf.Tensor) -> tf.Tensor:
        hidden, cell = tf.zeros([units]), tf.zeros([units])
        for at in range(steps):
            hidden, cell = _step(x[at], hidden, cell, units)
        return hidden

    return network


def _looped(units: int, steps: int) -> Callable[[tf.Tensor], tf.Tensor]:
    def network(x: tf.Tensor) -> tf.Tensor:
        hidden, cell = tf.zeros([units]), tf.zeros([units])
        for at in tf.range(steps):
            hidden, cell = _step(x[at], hidden, cell, units)
        return hidden

    return network


def _summed(network: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    def loss(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.square(network(x)))

    return loss


def _x(units: int, steps: int) -> dict[str, tf.TensorSpec]:
    return {"x": tf.TensorSpec([steps, units], tf.float32)}


def _batch(units: int, steps: int) -> Callable[[int], Mapping[str, np.ndarray]]:
    return lambda n_rows: {"x": normal(n_rows, steps, units, seed=4)}


def _configuration(
    name: str,
    rows: int,
    units: int,
    steps: int,
    kind: str,
    function: Callable[..., tf.Tensor],
    *,
    by_weights: bool = False,
) -> Configuration:
    return Configuration(
        name=name,
        rows=rows,
        inputs=_x(units, steps),
        function=function,
        batch=_batch(units, steps),
        kind=kind,
        wrt=(lambda: list(_weights(units).values())) if by_weights else None,
    )


CONFIGURATIONS = (
    _configuration("lstm_batch_jacobian", 100, 32, 8, "jacobian", _unrolled(32, 8)),
    _configuration("lstm_loop_batch_jacobian", 100, 32, 8, "jacobian", _looped(32, 8)),
    _configuration("lstm_hessian", 2, 2, 10, "hessian", _summed(_unrolled(2, 10))),
    _configuration("lstm_batch_hessian", 4, 4, 10, "hessian", _summed(_unrolled(4, 10))),
    _configuration("lstm_per_example_grad", 100, 32, 8, "gradient", _summed(_unrolled(32, 8)), by_weights=True),
    _configuration("lstm_per_example_grad", 256, 32, 8, "gradient", _summed(_unrolled(32, 8)), by_weights=True),
    _configuration("lstm_loop_per_example_grad", 100, 32, 8, "gradient", _summed(_looped(32, 8)), by_weights=True),
)

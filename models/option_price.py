"""What is an option worth, and how does that change with what it depends on? Black's formula and its derivatives.

The function says the price alone. ``SPEC`` declares two derivatives, and the server works them out from it:

- the gradient, by every number that goes in: delta (by the forward price), vega (by the volatility), theta and the
  change with the strike, at ``POST /v1/models/{name}:gradient``;
- the Hessian by forward price and volatility: gamma, vanna and volga, at ``:hessian``.

A derivative needs an output without dimensions; for one with dimensions declare a ``jacobian``. What can't be
differentiated by (``is_call``) is left out unless it is asked for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["INPUTS", "SPEC", "examples", "predict"]

_SCALAR = tf.TensorSpec([], tf.float64)
INPUTS = {
    "forward": _SCALAR,
    "strike": _SCALAR,
    "years": _SCALAR,
    "volatility": _SCALAR,
    "is_call": tf.TensorSpec([], tf.bool),
}


def predict(
    forward: tf.Tensor, strike: tf.Tensor, years: tf.Tensor, volatility: tf.Tensor, is_call: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Return the price, undiscounted.

    Shapes: all scalars. Units: years to expiry; volatility per square root of a year (0.2 is 20%).
    Source: F. Black, "The Pricing of Commodity Contracts", 1976.
    """
    deviation = volatility * tf.sqrt(years)
    upper = tf.math.log(forward / strike) / deviation + deviation / 2
    sign = tf.where(is_call, tf.ones_like(forward), -tf.ones_like(forward))
    price = sign * (forward * _below(sign * upper) - strike * _below(sign * (upper - deviation)))
    return {"price": price}


def _below(x: tf.Tensor) -> tf.Tensor:
    """Return the probability that a standard normal number is below ``x``; precise in the left tail too."""
    return tf.math.erfc(-x / math.sqrt(2)) / 2


def examples() -> Iterator[dict[str, Any]]:
    """Yield 500 options of a realistic chain."""
    rng = np.random.default_rng(seed=76)
    for _ in range(500):
        forward = rng.uniform(20, 400)
        years = rng.choice([1 / 12, 1 / 4, 1 / 2, 1, 2, 5])
        volatility = rng.uniform(0.1, 0.5)
        yield {
            "forward": np.float64(forward),
            "strike": np.float64(forward * math.exp(rng.uniform(-2, 2) * volatility * math.sqrt(years))),
            "years": np.float64(years),
            "volatility": np.float64(volatility),
            "is_call": np.bool_(rng.integers(2)),
        }


SPEC = {
    "derivatives": [{"kind": "gradient"}, {"kind": "hessian", "wrt": ["forward", "volatility"]}],
    "examples": [{name: value.item() for name, value in option.items()} for option in itertools.islice(examples(), 16)],
}

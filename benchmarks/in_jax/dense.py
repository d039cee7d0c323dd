"""Models of dense layers and embeddings, and the solver."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["MODELS"]

Tensors = Mapping[str, Any]


def _mlp(w: Tensors, x: Tensors) -> dict[str, Any]:
    hidden = jax.nn.relu(x["image"] @ w["w1"] + w["b1"])
    hidden = jax.nn.relu(hidden @ w["w2"] + w["b2"])
    return {"probabilities": jax.nn.softmax(hidden @ w["w3"] + w["b3"])}


def _embedding_bag(w: Tensors, x: Tensors) -> dict[str, Any]:
    rows = w["table"][x["tokens"] % len(w["table"])]
    counted = (jnp.arange(len(x["tokens"])) < x["length"]).astype(jnp.float32)
    mean = counted @ rows / jnp.maximum(x["length"], 1)
    return {"embedding": mean * jax.lax.rsqrt(jnp.maximum(jnp.sum(mean * mean), 1e-12))}


def _recommender(w: Tensors, x: Tensors) -> dict[str, Any]:
    n_categories = len(x["categories"])
    rows = x["categories"] + jnp.arange(n_categories, dtype=jnp.int32) * (len(w["wide"]) // n_categories)
    features = jnp.concatenate([x["numbers"], w["table"][rows].reshape(-1)])
    hidden = jax.nn.relu(features @ w["w1"] + w["b1"])
    hidden = jax.nn.relu(hidden @ w["w2"] + w["b2"])
    return {"click": jax.nn.sigmoid((hidden @ w["w3"] + w["b3"])[0] + jnp.sum(w["wide"][rows]))}


def _below(x: Any) -> Any:
    return jax.lax.erfc(-x / math.sqrt(2)) / 2


def _solver(_: Tensors, x: Tensors) -> dict[str, Any]:
    price, forward, strike, years = x["price"], x["forward"], x["strike"], x["years"]
    time_value = price - jnp.maximum(jnp.where(x["is_call"], forward - strike, strike - forward), 0.0)
    finite = jnp.isfinite(forward) & jnp.isfinite(strike) & jnp.isfinite(years)
    positive = (forward > 0) & (strike > 0) & (years > 0) & (time_value > 0)
    solvable = positive & finite & (time_value < jnp.minimum(forward, strike))
    bend = jnp.sqrt(2 * jnp.abs(jnp.log(forward / strike)) / years)
    line = jnp.sqrt(2 * math.pi / years) * time_value / jnp.minimum(forward, strike)

    def step(state: Any) -> Any:
        volatility, low, high, _, steps = state
        deviation = volatility * jnp.sqrt(years)
        upper = jnp.log(forward / strike) / deviation + deviation / 2
        sign = jnp.where(forward < strike, 1.0, -1.0)
        value = sign * (forward * _below(sign * upper) - strike * _below(sign * (upper - deviation)))
        slope = forward * jnp.sqrt(years) * jnp.exp(-upper * upper / 2) / math.sqrt(2 * math.pi)
        low, high = jnp.where(value < time_value, volatility, low), jnp.where(value < time_value, high, volatility)
        newton = volatility - (value - time_value) / slope
        following = jnp.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
        return following, low, high, jnp.abs(following - volatility), steps + 1

    def search(_: Any) -> Any:
        start = jnp.clip(jnp.maximum(bend, line), 1e-4, 5.0)
        state = (start, jnp.zeros_like(price), jnp.full_like(price, 10.0), jnp.full_like(price, 10.0), 0)
        return jax.lax.while_loop(lambda state: (state[3] > 1e-10) & (state[4] < 64), step, state)[0]

    return {"volatility": jax.lax.cond(solvable, search, lambda _: jnp.zeros_like(price), None)}


#: Takes the weights and one example's inputs.
MODELS: dict[str, Callable[[Tensors, Tensors], dict[str, Any]]] = {
    "mlp": _mlp,
    "embedding_bag": _embedding_bag,
    "recommender": _recommender,
    "solver": _solver,
}

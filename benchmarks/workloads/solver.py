"""Implied volatility: Newton's method with a bracket, an ``if`` and a ``while`` whose course differs per row."""

from __future__ import annotations

import math

import tensorflow as tf

from benchmarks.workloads.workload import Workload
from models import implied_volatility as one

__all__ = ["SOLVER"]


def _by_hand(
    price: tf.Tensor, forward: tf.Tensor, strike: tf.Tensor, years: tf.Tensor, is_call: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Step all rows until the last has come to rest; a row that rests keeps its volatility."""
    time_value = price - tf.maximum(tf.where(is_call, forward - strike, strike - forward), 0.0)
    positive = (forward > 0) & (strike > 0) & (years > 0) & (time_value > 0)
    finite = tf.math.is_finite(forward) & tf.math.is_finite(strike) & tf.math.is_finite(years)
    solvable = positive & finite & (time_value < tf.minimum(forward, strike))
    bend = tf.sqrt(2 * tf.abs(tf.math.log(forward / strike)) / years)
    line = tf.sqrt(2 * math.pi / years) * time_value / tf.minimum(forward, strike)
    volatility = tf.clip_by_value(tf.maximum(bend, line), 1e-4, one.HIGHEST / 2)
    volatility = tf.where(solvable, volatility, tf.zeros_like(price))

    def step(
        active: tf.Tensor, volatility: tf.Tensor, low: tf.Tensor, high: tf.Tensor, steps: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        value, slope = one.black_price(volatility, forward, strike, years)
        is_below = value < time_value
        low, high = tf.where(is_below, volatility, low), tf.where(is_below, high, volatility)
        newton = volatility - (value - time_value) / slope
        following = tf.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
        moved = tf.abs(following - volatility)
        steps += 1
        return active & (moved > one.TOLERANCE), tf.where(active, following, volatility), low, high, steps

    _, volatility, *_ = tf.while_loop(
        lambda active, _volatility, _low, _high, steps: tf.reduce_any(active) & (steps < one.MAX_STEPS),
        step,
        (solvable, volatility, tf.zeros_like(price), tf.zeros_like(price) + one.HIGHEST, tf.constant(0)),
    )
    return {"volatility": volatility}


SOLVER = Workload(
    name="solver",
    inputs=one.INPUTS,
    predict=one.predict,
    by_hand=_by_hand,
    examples=one.examples,
    weights=dict,
    tolerance=one.SPEC["tolerance"],  # type: ignore[arg-type]
)

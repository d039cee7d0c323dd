"""What volatility does an option's price imply? Newton's method, with bisection where Newton would go astray.

A model needs no weights: this one is an equation solver, with an ``if`` and a ``while`` on its data. Some prices
take three steps, others thirty, and prices that no volatility explains take none.

- Write the control flow as Python. Over many examples the loop goes on until the last one has converged, and each
  row keeps the answer that it converged to: its result is what it would have got alone.
- A value that is set in one branch must be set, with the same shape and dtype, in every other.
- Floats of 64 bits are said once, in ``INPUTS``; constants take the dtype of what they meet.
- A registration checks the batched graphs on random inputs too. Hardly any random quote makes sense, so ``SPEC``
  gives it some that do.

There is no formula for it, but the price rises with the volatility, so a bracket that holds the answer can be
halved for ever; Newton's step is taken whenever it stays inside, which is nearly always, and then is much faster.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["INPUTS", "SPEC", "black_price", "examples", "predict", "solve"]

#: Volatility per square root of a year at which the search ends: 1,000%.
HIGHEST = 10.0
#: Widest step that counts as standing still. Newton squares its error, so what is left then is far below it.
TOLERANCE = 1e-10
#: Halving the bracket this often narrows it to TOLERANCE, so nothing takes longer.
MAX_STEPS = 64

_SCALAR = tf.TensorSpec([], tf.float64)
INPUTS = {
    "price": _SCALAR,
    "forward": _SCALAR,
    "strike": _SCALAR,
    "years": _SCALAR,
    "is_call": tf.TensorSpec([], tf.bool),
}


def predict(
    price: tf.Tensor, forward: tf.Tensor, strike: tf.Tensor, years: tf.Tensor, is_call: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Return the volatility at which Black's formula gives ``price``, undiscounted.

    It is 0 where no volatility explains the price, and 10 where none below that does.

    Shapes: all scalars. Units: years to expiry; volatility per square root of a year (0.2 is 20%).
    Source: F. Black, "The Pricing of Commodity Contracts", 1976.
    """
    volatility, _ = solve(price, forward, strike, years, is_call)
    return {"volatility": volatility}


def solve(
    price: tf.Tensor, forward: tf.Tensor, strike: tf.Tensor, years: tf.Tensor, is_call: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the volatility and the number of steps that it took."""
    # Calls and puts of one strike have the same time value, which is all that an option out of the money is worth.
    # Solving for it, not for the price, keeps its digits where the intrinsic value is much the larger part.
    intrinsic = tf.maximum(forward - strike, 0.0) if is_call else tf.maximum(strike - forward, 0.0)
    time_value = price - intrinsic
    low = tf.zeros_like(price)
    high = tf.zeros_like(price) + HIGHEST
    volatility = low
    steps = tf.constant(0)
    if _has_answer(time_value, forward, strike, years):
        volatility = _first_guess(time_value, forward, strike, years)
        moved = high
        while moved > TOLERANCE and steps < MAX_STEPS:
            value, slope = black_price(volatility, forward, strike, years)
            if value < time_value:
                low = volatility
            else:
                high = volatility
            newton = volatility - (value - time_value) / slope
            # Not inside also covers a slope of 0, where Newton's step is infinite or no number at all.
            if newton >= low and newton <= high:
                following = newton
            else:
                following = (low + high) / 2
            moved = tf.abs(following - volatility)
            volatility = following
            steps += 1
    return volatility, steps


def black_price(
    volatility: tf.Tensor, forward: tf.Tensor, strike: tf.Tensor, years: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return Black's price of the option that is out of the money, and how fast it rises with the volatility."""
    deviation = volatility * tf.sqrt(years)
    upper = tf.math.log(forward / strike) / deviation + deviation / 2
    lower = upper - deviation
    sign = tf.where(forward < strike, tf.ones_like(forward), -tf.ones_like(forward))
    value = sign * (forward * _below(sign * upper) - strike * _below(sign * lower))
    slope = forward * tf.sqrt(years) * tf.exp(-upper * upper / 2) / math.sqrt(2 * math.pi)
    return value, slope


def _has_answer(time_value: tf.Tensor, forward: tf.Tensor, strike: tf.Tensor, years: tf.Tensor) -> tf.Tensor:
    """Some volatility explains a price between what the option is worth at once and what it can be worth at most."""
    positive = (forward > 0) & (strike > 0) & (years > 0) & (time_value > 0)
    finite = tf.math.is_finite(forward) & tf.math.is_finite(strike) & tf.math.is_finite(years)
    return positive & finite & (time_value < tf.minimum(forward, strike))


def _first_guess(time_value: tf.Tensor, forward: tf.Tensor, strike: tf.Tensor, years: tf.Tensor) -> tf.Tensor:
    """Where Newton's method can't overshoot: where the price bends from convex to concave in the volatility, or
    further on where a straight line from no volatility reaches the price, which near the money is close to it.

    Source: S. Manaster and G. Koehler, "The Calculation of Implied Variances", Journal of Finance, 1982;
        M. Brenner and M. Subrahmanyam, "A Simple Formula to Compute the Implied Standard Deviation", 1988.
    """
    bend = tf.sqrt(2 * tf.abs(tf.math.log(forward / strike)) / years)
    line = tf.sqrt(2 * math.pi / years) * time_value / tf.minimum(forward, strike)
    return tf.clip_by_value(tf.maximum(bend, line), 1e-4, HIGHEST / 2)


def _below(x: tf.Tensor) -> tf.Tensor:
    """Return the probability that a standard normal number is below ``x``; precise in the left tail too."""
    return tf.math.erfc(-x / math.sqrt(2)) / 2


def examples() -> Iterator[dict[str, Any]]:
    """Yield 2,000 quotes of a realistic option chain: strikes, terms and a volatility smile, priced exactly."""
    rng = np.random.default_rng(seed=60)
    for _ in range(2_000):
        forward = rng.uniform(20, 400)
        years = rng.choice([1 / 52, 1 / 12, 1 / 4, 1 / 2, 1, 2, 5])
        # Listed strikes reach about two and a half deviations to either side.
        distance = rng.uniform(-2.5, 2.5)
        volatility = 0.15 + rng.uniform(0, 0.3) + 0.03 * distance**2
        strike = forward * math.exp(distance * volatility * math.sqrt(years))
        is_call = bool(rng.integers(2))
        price = _quote(volatility, forward, strike, years, is_call=is_call)
        yield {
            "price": np.float64(price),
            "forward": np.float64(forward),
            "strike": np.float64(strike),
            "years": np.float64(years),
            "is_call": np.bool_(is_call),
        }


def _quote(volatility: float, forward: float, strike: float, years: float, *, is_call: bool) -> float:
    sign = 1 if is_call else -1
    deviation = volatility * math.sqrt(years)
    upper = math.log(forward / strike) / deviation + deviation / 2
    terms = ((forward, upper), (-strike, upper - deviation))
    return sum(sign * worth * math.erfc(-sign * x / math.sqrt(2)) / 2 for worth, x in terms)


SPEC = {
    # Far from the money a price of 16 digits fixes a volatility to 9 or so: the last ones depend on how it is rounded.
    "tolerance": 1e-8,
    "examples": [{name: value.item() for name, value in quote.items()} for quote in itertools.islice(examples(), 16)],
}

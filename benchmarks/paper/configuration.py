"""One configuration of the paper's benchmarks: a function of one example, how many rows, and what to take of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

__all__ = ["Configuration", "normal", "per_example", "variables"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A benchmark. ``kind`` is a derivative of ``function``'s one output, or None for the output itself.

    ``wrt`` gives the variables to differentiate by; None takes the float inputs.
    """

    name: str
    rows: int
    inputs: Mapping[str, tf.TensorSpec]
    function: Callable[..., tf.Tensor]
    #: Takes the number of rows, gives stacked inputs.
    batch: Callable[[int], Mapping[str, np.ndarray]]
    kind: str | None = None
    wrt: Callable[[], Sequence[tf.Variable]] | None = None
    by_hand: Callable[..., tf.Tensor] | None = None
    #: Too long for a run that measures everything; asked for by name.
    is_long: bool = False


def per_example(configuration: Configuration, *, use_pfor: bool) -> Callable[..., dict[str, tf.Tensor]]:
    """Return the benchmark for one example with TensorFlow's own means: pfor or a loop over the output's elements."""

    def answer(**row: tf.Tensor) -> dict[str, tf.Tensor]:
        if configuration.kind is None:
            return {"d0": configuration.function(**row)}
        floats = [value for value in row.values() if value.dtype.is_floating]
        sources = list(configuration.wrt()) if configuration.wrt else floats
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(floats)
            with tf.GradientTape() as inner:
                inner.watch(floats)
                result = configuration.function(**row)
            if configuration.kind in ("gradient", "hessian"):
                result = inner.gradient(result, sources)
        if configuration.kind == "gradient":
            taken = result
        elif configuration.kind == "jacobian":
            taken = outer.jacobian(result, sources, experimental_use_pfor=use_pfor)
        else:
            taken = [outer.jacobian(result[0], sources[0], experimental_use_pfor=use_pfor)]
        return {f"d{index}": value for index, value in enumerate(taken)}

    return answer


def normal(*shape: int, seed: int, scale: float = 1.0) -> np.ndarray:
    """Return normal numbers, always the same."""
    return np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)


def variables(values: Mapping[str, np.ndarray]) -> dict[str, tf.Variable]:
    """Make variables outside of any trace."""
    with tf.init_scope():
        return {name: tf.Variable(value, name=name) for name, value in values.items()}

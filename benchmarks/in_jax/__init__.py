"""The forward models in JAX, each for one example, with the same weights; ``jax.vmap`` batches them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["contender"]


def contender(
    name: str, weights: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]
) -> Callable[[], dict[str, np.ndarray]]:
    """Return a model under ``jax.vmap`` and ``jax.jit`` as a call from arrays to arrays, like a session's."""
    import jax

    if any(value.dtype == np.float64 for value in inputs.values()):
        jax.config.update("jax_enable_x64", val=True)

    from benchmarks.in_jax import convolutions, dense, sequences

    models: dict[str, Callable[..., dict[str, Any]]] = {**dense.MODELS, **convolutions.MODELS, **sequences.MODELS}
    # Variables are on the device before the call, as a session's are.
    held = jax.device_put(dict(weights))
    batched = jax.jit(jax.vmap(models[name], in_axes=(None, 0)))

    def call() -> dict[str, np.ndarray]:
        return {key: np.asarray(value) for key, value in batched(held, inputs).items()}

    return call

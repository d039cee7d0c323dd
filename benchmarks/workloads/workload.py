"""What a forward model has to bring along to be measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer import Length

__all__ = ["Workload"]

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model written for one example, the same batched by hand, and examples to run them on.

    ``inputs`` are those of one example; a dimension that is None has its most in ``lengths``. ``weights`` is what
    other libraries need to compute the same.
    """

    name: str
    inputs: Mapping[str, tf.TensorSpec]
    predict: Callable[..., dict[str, tf.Tensor]]
    by_hand: Callable[..., dict[str, tf.Tensor]]
    examples: Callable[[], Iterator[Mapping[str, Any]]]
    weights: Callable[[], Arrays]
    lengths: Mapping[str, Length] = field(default_factory=dict)
    #: Ops that are allowed to run once for each row.
    allow_looped: tuple[str, ...] = ()
    #: How far answers may be apart, where the dtype's own tolerance is too strict.
    tolerance: float | None = None
    #: Why XLA or JAX can't run it.
    not_in_xla: str | None = None

    def batch(self, n_rows: int) -> dict[str, np.ndarray]:
        """Stack the first ``n_rows`` examples, padded to the longest that is allowed."""
        rows = list(islice(cycle(self.examples()), n_rows))
        return {name: np.stack([self._padded(name, row[name]) for row in rows]) for name in self.inputs}

    def _padded(self, name: str, value: Any) -> np.ndarray:
        dtype = self.inputs[name].dtype
        array = np.asarray(value, object if dtype == tf.string else dtype.as_numpy_dtype)
        if name not in self.lengths:
            return array
        most = self.lengths[name].max
        return np.pad(array, [(0, most - len(array)), *([(0, 0)] * (array.ndim - 1))])

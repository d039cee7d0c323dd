"""What is written for batches, called with one example: a batch of one whose dimension is taken off again.

Whether that is right for a given function is what ``batch_dimension.py`` finds out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import tensorflow as tf

from vectorizer.errors import BatchDimensionError

__all__ = ["BatchFunction", "of_keras_model"]


class BatchFunction:
    """A function of batches, callable with one example.

    ``batched`` takes the inputs by name, each with a leading dimension, and returns a tensor or a dict or tuple of them
    with the same. ``name`` is what messages call it; ``batch_size`` is the one that it is declared for, None for any.
    """

    def __init__(self, batched: Callable[..., Any], *, name: str, batch_size: int | None = None) -> None:
        self.batched = batched
        self.name = name
        self.batch_size = batch_size

    def __call__(self, **example: tf.Tensor) -> Any:
        """Run one example.

        Shapes: inputs and results without the batch dimension.
        Errors: BatchDimensionError if a result has none.
        """
        result = self.batched(**{name: tf.expand_dims(value, 0) for name, value in example.items()})
        return tf.nest.map_structure(self._only_row, result)

    def of_batch(self, batch: Mapping[str, tf.Tensor]) -> Any:
        """Run a batch as the function itself takes it, in a graph, which is how it is traced for one example."""
        return self._graph(**batch)

    @cached_property
    def _graph(self) -> Callable[..., Any]:
        graph: Callable[..., Any] = tf.function(self.batched, autograph=False)
        return graph

    def _only_row(self, value: Any) -> Any:
        if not isinstance(value, tf.Tensor):
            return value  # what can't be an output is refused by who names outputs
        if value.shape.rank == 0 or (value.shape.rank is not None and value.shape[0] not in (1, None)):
            raise BatchDimensionError(
                f"{self.name}: for a batch of one it returns the shape {value.shape.as_list()}, expected a leading 1: "
                "its batch dimension is gone or was never there. tf.squeeze without an axis takes it off (name the "
                "axis), and so does a mean or a sum over the batch"
            )
        return tf.squeeze(value, 0)


def of_keras_model(model: Any) -> BatchFunction:
    """Return a Keras model as a function of batches, run as in inference."""
    parameters = inspect.signature(model.call).parameters

    def batched(**batch: tf.Tensor) -> Any:
        if len(batch) == 1:
            return model(next(iter(batch.values())), training=False)
        if batch.keys() <= parameters.keys():  # a subclass with a parameter for each input
            return model(**batch, training=False)
        return model(batch, training=False)

    declared = [tensor.shape[0] for tensor in getattr(model, "inputs", None) or () if tensor.shape]
    return BatchFunction(batched, name=model.name, batch_size=declared[0] if declared else None)

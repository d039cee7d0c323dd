"""The batch that a model for batches takes anyway: what it is served by where an op of it can't be vectorized.

A program that another compiler made (jax2tf's ``XlaCallModule``) is one op, whose inside no converter sees. If its
author wrote it for batches, and each row answers as it does alone (``batch_dimension.py``), nothing need be converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter
from vectorizer.conversions import ConversionLog
from vectorizer.errors import BatchDimensionError
from vectorizer.trace import ExampleFunction
from vectorizer.vectorized import Bucket

__all__ = ["OwnBatch", "takes_batches_of"]


def takes_batches_of(body: ExampleFunction, bucket: Bucket) -> bool:
    """Return whether the function is one of batches that may have this bucket's size."""
    return body.batch is not None and body.batch.batch_size in (None, bucket.rows)


class OwnBatch:
    """Computes the rows of a bucket by the function as it was given; see ``batched_graph``."""

    def __init__(self, body: ExampleFunction) -> None:
        assert body.batch is not None, "a function of one example has no batch of its own"
        self._batch = body.batch
        self._body = body

    def __call__(
        self, arguments: Sequence[tf.Tensor], rows: int, _: Mapping[str, Converter], __: ConversionLog
    ) -> list[Any]:
        """Run the batch. Errors: BatchDimensionError if an output has not a row for each example."""
        results = self._batch.batched(**dict(zip(self._body.input_names, arguments, strict=True)))
        outputs = self._body.named_batch(results)
        one = self._body.concrete.structured_outputs
        return [
            self._rows(name, value, rows, each.shape) for (name, value), each in zip(outputs.items(), one, strict=True)
        ]

    def _rows(self, name: str, value: tf.Tensor, rows: int, of_one: tf.TensorShape) -> tf.Tensor:
        if not value.shape[:1].is_compatible_with([rows]):
            raise BatchDimensionError(
                f"{self._body.name}: for a batch of {rows}, output {name!r} has the shape {value.shape}: it has no row "
                "for each example, so it can't be served by the example"
            )
        return tf.ensure_shape(value, [rows, *of_one])

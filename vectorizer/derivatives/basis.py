"""Every element of a Jacobian at once: one pullback for many cotangents, vectorized, in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import Converter, convert_rows
from vectorizer.conversions import ConversionLog
from vectorizer.derivatives.tape import Recorded

__all__ = ["pull_each_element"]


def pull_each_element(
    recorded: Recorded, *, at_once: int, converters: Mapping[str, Converter], log: ConversionLog
) -> list[tf.Tensor]:
    """Pull back every element of the targets, the targets' elements in their order along the first dimension.

    At most ``at_once`` are computed side by side; with more, a loop goes over equal chunks.
    Shapes: ``[k, *s]`` for each source of shape ``s``, k the number of all targets' elements.
    """
    sizes = [int(np.prod(target.shape.as_list(), dtype=np.int64)) for target in recorded.targets]
    n_elements = sum(sizes)
    if n_elements == 0:
        return [tf.zeros([0, *shape], dtype) for shape, dtype in zip(recorded.shapes, recorded.dtypes, strict=True)]
    pullback = recorded.pullback()
    n_chunks = -(-n_elements // at_once)
    chunk = -(-n_elements // n_chunks)

    def pull_from(first: Any) -> list[tf.Tensor]:
        # Past the last element a row of the basis is zero, and so is what it pulls back.
        basis = tf.one_hot(first + tf.range(chunk), n_elements, dtype=recorded.targets[0].dtype)
        parts = tf.split(basis, sizes, axis=1)
        cotangents = [
            tf.cast(tf.reshape(part, [chunk, *target.shape]), target.dtype)
            for part, target in zip(parts, recorded.targets, strict=True)
        ]
        return convert_rows(pullback, cotangents, rows=chunk, converters=converters, log=log)

    if n_chunks == 1:
        return pull_from(0)
    return [value[:n_elements] for value in _in_chunks(pull_from, recorded, n_chunks=n_chunks, chunk=chunk)]


def _in_chunks(pull_from: Any, recorded: Recorded, *, n_chunks: int, chunk: int) -> list[tf.Tensor]:
    arrays = [
        tf.TensorArray(dtype, size=n_chunks, element_shape=[chunk, *shape])
        for shape, dtype in zip(recorded.shapes, recorded.dtypes, strict=True)
    ]

    def step(index: Any, *written: Any) -> tuple[Any, ...]:
        values = pull_from(index * chunk)
        return (index + 1, *(array.write(index, value) for array, value in zip(written, values, strict=True)))

    _, *filled = tf.while_loop(lambda index, *_: index < n_chunks, step, [tf.constant(0), *arrays])
    return [
        tf.reshape(array.stack(), [n_chunks * chunk, *shape])
        for array, shape in zip(filled, recorded.shapes, strict=True)
    ]

"""Every element of a Jacobian at once: one pullback for many cotangents, vectorized, in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, convert_rows
from vectorizer.conversions import ConversionLog
from vectorizer.derivatives.tape import Recorded

__all__ = ["Pull", "each_element", "pull_each_element"]

#: Cotangents ``[chunk, *y]`` for each target of shape y -> ``[chunk, *s]`` for each result of shape s.
Pull = Callable[[Sequence[tf.Tensor]], Sequence[tf.Tensor]]


def pull_each_element(
    recorded: Recorded, *, at_once: int, converters: Mapping[str, Converter], log: ConversionLog
) -> list[tf.Tensor]:
    """Pull back every element of the targets, all through one forward pass.

    Shapes: ``[k, *s]`` for each source of shape ``s``, k the number of all targets' elements.
    """
    # Traced before there is a loop over chunks: its constants would become operands of the loop, of unknown value.
    pullback = recorded.pullback()

    def pull(cotangents: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return convert_rows(pullback, cotangents, rows=cotangents[0].shape[0], converters=converters, log=log)

    targets = [tf.TensorSpec(target.shape, target.dtype) for target in recorded.targets]
    results = [tf.TensorSpec(shape, dtype) for shape, dtype in zip(recorded.shapes, recorded.dtypes, strict=True)]
    return each_element(pull, targets, results, at_once=at_once)


def each_element(
    pull: Pull, targets: Sequence[tf.TensorSpec], results: Sequence[tf.TensorSpec], *, at_once: int
) -> list[tf.Tensor]:
    """Pull back every element of the targets, in their order along the first dimension.

    At most ``at_once`` are computed side by side; with more, a loop goes over equal chunks.
    Shapes: ``[k, *s]`` for each result of shape ``s``, k the number of all targets' elements.
    """
    sizes = [target.shape.num_elements() for target in targets]
    n_elements = sum(sizes)
    if n_elements == 0:
        return [tf.zeros([0, *result.shape], result.dtype) for result in results]
    n_chunks = -(-n_elements // at_once)
    chunk = -(-n_elements // n_chunks)

    def pull_from(first: Any) -> Sequence[tf.Tensor]:
        # Past the last element a row of the basis is zero, and so is what it pulls back.
        basis = tf.one_hot(first + tf.range(chunk), n_elements, dtype=targets[0].dtype)
        parts = tf.split(basis, sizes, axis=1)
        return pull(
            [
                tf.cast(tf.reshape(part, [chunk, *target.shape]), target.dtype)
                for part, target in zip(parts, targets, strict=True)
            ]
        )

    if n_chunks == 1:
        return list(pull_from(0))
    return [value[:n_elements] for value in _in_chunks(pull_from, results, n_chunks=n_chunks, chunk=chunk)]


def _in_chunks(pull_from: Any, results: Sequence[tf.TensorSpec], *, n_chunks: int, chunk: int) -> list[tf.Tensor]:
    arrays = [tf.TensorArray(result.dtype, size=n_chunks, element_shape=[chunk, *result.shape]) for result in results]

    def step(index: Any, *written: Any) -> tuple[Any, ...]:
        values = pull_from(index * chunk)
        return (index + 1, *(array.write(index, value) for array, value in zip(written, values, strict=True)))

    _, *filled = tf.while_loop(lambda index, *_: index < n_chunks, step, [tf.constant(0), *arrays])
    return [
        tf.reshape(array.stack(), [n_chunks * chunk, *result.shape])
        for array, result in zip(filled, results, strict=True)
    ]

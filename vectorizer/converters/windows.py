"""Windows that slide over images: patches, local response normalization, pooling that tells where."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, same_op, stacked, wrap
from vectorizer.converters.folding import batch_folding, folded, reshape_to, sizes, unfolded

__all__ = ["CONVERTERS"]


def _first_element(images: tf.Tensor, pfor_input: Any) -> Any:
    """Return where each row's images begin in the numbering of all rows' elements, or 0 if images count alone.

    Shapes: [rows, n, h, w, c] -> [rows, 1, 1, 1, 1].
    """
    if not pfor_input.get_attr("include_batch_in_index"):
        return 0
    rows, *rest = sizes(images)
    n_elements = tf.reduce_prod(tf.cast(tf.stack(rest), tf.int64))
    return reshape_to(tf.range(tf.cast(rows, tf.int64)) * n_elements, [rows, 1, 1, 1, 1])


def _max_pool_with_argmax(pfor_input: Any) -> Any:
    images = pfor_input.stacked_input(0)
    rows = sizes(images)[0]
    largest, where = same_op(pfor_input, [folded(images)])
    where = unfolded(where, rows) - tf.cast(_first_element(images, pfor_input), where.dtype)
    return [wrap(unfolded(largest, rows), stacked=True), wrap(where, stacked=True)]


def _max_pool_gradient_with_argmax(pfor_input: Any) -> Any:
    images, gradients, where = (stacked(pfor_input.input(index), pfor_input) for index in range(3))
    where += tf.cast(_first_element(images, pfor_input), where.dtype)
    (of_images,) = same_op(pfor_input, [folded(images), folded(gradients), folded(where)])
    return wrap(unfolded(of_images, sizes(images)[0]), stacked=True)


CONVERTERS: dict[str, Converter] = {
    "ExtractImagePatches": batch_folding({0}),
    "ExtractVolumePatches": batch_folding({0}),
    "LRN": batch_folding({0}),
    "LRNGrad": batch_folding({0, 1, 2}),
    "MaxPoolGradWithArgmax": _max_pool_gradient_with_argmax,
    "MaxPoolWithArgmax": _max_pool_with_argmax,
}

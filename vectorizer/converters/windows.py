"""Windows on images: patches, glimpses, local response normalization, pooling that tells where or by fractions."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, wrap
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


def _glimpse(pfor_input: Any) -> Any:
    """Cut out windows around places of each row; what lies outside of the image must not be random."""
    if pfor_input.get_attr("uniform_noise") or pfor_input.get_attr("noise") not in (b"zero", b""):
        not_for_these("it fills what lies outside of the image with random numbers; use noise='zero'")
    return batch_folding({0, 2})(pfor_input)


def _fractional_pool(pfor_input: Any) -> Any:
    """Pool by a fraction. Where the regions lie is drawn from the op's own seeds, and is the same for all images."""
    if not pfor_input.get_attr("deterministic") or not (pfor_input.get_attr("seed") or pfor_input.get_attr("seed2")):
        not_for_these("it draws the regions that it pools; give deterministic=True and a seed")
    images = pfor_input.stacked_input(0)
    pooled, *regions = same_op(pfor_input, [folded(images)])
    return [wrap(unfolded(pooled, sizes(images)[0]), stacked=True), *(wrap(one, stacked=False) for one in regions)]


CONVERTERS: dict[str, Converter] = {
    "ExtractGlimpse": _glimpse,
    "ExtractGlimpseV2": _glimpse,
    "ExtractImagePatches": batch_folding({0}),
    "ExtractVolumePatches": batch_folding({0}),
    "FractionalAvgPool": _fractional_pool,
    "FractionalMaxPool": _fractional_pool,
    "LRN": batch_folding({0}),
    "LRNGrad": batch_folding({0, 1, 2}),
    "MaxPoolGradWithArgmax": _max_pool_gradient_with_argmax,
    "MaxPoolWithArgmax": _max_pool_with_argmax,
}

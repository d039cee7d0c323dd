"""Non-maximum suppression over all rows at once.

The kernels pick a box, strike out those that overlap it, and go on. Here all rows pick their n-th box together: the
steps stand in the graph one after another, as many as boxes can be picked, so that there is no loop. Order and
rounding are those of the CPU kernel (non_max_suppression_op.cc): of equal scores the first, and overlaps from the
same products and quotients in float32, so that the same boxes are picked.

An op whose result is as long as the number of boxes that were picked has no batched form: rows differ in length.
Padded to ``max_output_size`` they don't. (tf.image.non_max_suppression_padded is no op: it is loops of TensorFlow's
own, and they are vectorized as loops.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, stacked, wrap
from vectorizer.converters.folding import batch_folding, sizes

__all__ = ["CONVERTERS"]

#: Each step adds about 25 nodes to the graph.
_MOST_STEPS = 200
_PAD = (
    "rows pick different numbers of boxes; use tf.raw_ops.NonMaxSuppressionV4 with pad_to_max_output_size=True "
    "and the number of valid ones that it returns"
)


def _refuse(_pfor_input: Any) -> Any:
    not_for_these(_PAD)


def _constant(pfor_input: Any, index: int) -> Any:
    """Return an operand's value, which must be a constant of the function."""
    value = tf.get_static_value(pfor_input.op.inputs[index])
    if value is None:
        not_for_these(f"{pfor_input.op.op_def.input_arg[index].name} must be a constant")
    return value


def _lower(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    # As std::min of C++: what is not a number stays where it stands, where tf.minimum would pass it on.
    return tf.where(b < a, b, a)


def _upper(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.where(a < b, b, a)


class _Boxes:
    """Boxes of all rows by their edges. Any two opposite corners make a box."""

    def __init__(self, corners: tf.Tensor) -> None:
        y_one, x_one, y_two, x_two = tf.unstack(tf.cast(corners, tf.float32), axis=-1)
        self.edges = [_lower(y_one, y_two), _lower(x_one, x_two), _upper(y_one, y_two), _upper(x_one, x_two)]
        top, left, bottom, right = self.edges
        self.edges.append((bottom - top) * (right - left))
        self.joined = tf.stack(self.edges, -1)

    def overlap(self, picked: tf.Tensor) -> tf.Tensor:
        """Return each box's intersection over union with the row's picked one. Shapes: [rows] -> [rows, boxes]."""
        its = tf.split(tf.gather(self.joined, picked, batch_dims=1), 5, -1)
        top, left, bottom, right, area = self.edges
        height = _upper(_lower(bottom, its[2]) - _upper(top, its[0]), tf.zeros([]))
        width = _upper(_lower(right, its[3]) - _upper(left, its[1]), tf.zeros([]))
        shared = height * width
        return tf.where((area <= 0) | (its[4] <= 0), 0.0, shared / (area + its[4] - shared))


def _pick(pfor_input: Any, *, with_scores: bool) -> Any:
    """Shapes: boxes [rows, boxes, 4], scores [rows, boxes] -> indices [rows, k], (scores [rows, k],) number [rows]."""
    if not pfor_input.get_attr("pad_to_max_output_size"):
        not_for_these(_PAD)
    n_wanted = int(_constant(pfor_input, 2))
    iou_limit = _constant(pfor_input, 3)
    if not 0 <= iou_limit <= 1:
        not_for_these(f"iou_threshold must be in [0, 1], not {iou_limit}")
    if with_scores and _constant(pfor_input, 5) != 0:
        not_for_these("soft suppression lowers scores one by one, in an order that the rows do not share")
    corners, scores = (stacked(pfor_input.input(index), pfor_input) for index in (0, 1))
    n_boxes = sizes(scores)[1]
    if not isinstance(n_boxes, int) or min(n_wanted, n_boxes) > _MOST_STEPS:
        not_for_these(f"boxes are picked one after another, at most {_MOST_STEPS}; lower max_output_size")
    limit = pfor_input.input(4)
    score_limit = limit.t[:, tf.newaxis] if limit.is_stacked else limit.t
    lowest = tf.constant(-np.inf, scores.dtype)
    boxes = _Boxes(corners)

    # A score that is not above the limit, or not a number, is never picked. Minus infinity is never above a limit.
    order = tf.where(scores > score_limit, scores, lowest)
    rows = sizes(scores)[0]
    n_picked = tf.zeros([rows], tf.int32)
    indices, picked_scores = [], []
    for _ in range(min(n_wanted, n_boxes)):
        is_there = tf.reduce_any(order > lowest, -1)
        index = tf.argmax(order, -1, output_type=tf.int32)
        n_picked += tf.cast(is_there, tf.int32)
        indices.append(tf.where(is_there, index, 0))
        if with_scores:
            score = tf.gather(order, index, batch_dims=1)
            picked_scores.append(tf.where(is_there, score, tf.zeros([], scores.dtype)))
        overlap = tf.cast(boxes.overlap(index), scores.dtype)
        is_picked = tf.range(n_boxes) == index[:, tf.newaxis]
        order = tf.where(is_picked | (overlap > tf.cast(iou_limit, overlap.dtype)), lowest, order)
        # The kernel multiplies by 0 for an overlap that is not a number.
        weighed = order * 0
        order = tf.where(tf.math.is_nan(overlap) & (order > 0), tf.where(weighed > score_limit, weighed, lowest), order)
    n_missing = max(n_wanted - n_boxes, 0)

    def padded(values: list[tf.Tensor], dtype: tf.DType) -> Any:
        joined = tf.stack(values, -1) if values else tf.zeros([rows, 0], dtype)
        return wrap(tf.pad(joined, [(0, 0), (0, n_missing)]), stacked=True)

    scored = [padded(picked_scores, scores.dtype)] if with_scores else []
    return [padded(indices, tf.int32), *scored, wrap(n_picked, stacked=True)]


CONVERTERS: dict[str, Converter] = {
    "CombinedNonMaxSuppression": batch_folding({0, 1}),
    "NonMaxSuppression": _refuse,
    "NonMaxSuppressionV2": _refuse,
    "NonMaxSuppressionV3": _refuse,
    "NonMaxSuppressionV4": lambda pfor_input: _pick(pfor_input, with_scores=False),
    "NonMaxSuppressionV5": lambda pfor_input: _pick(pfor_input, with_scores=True),
}

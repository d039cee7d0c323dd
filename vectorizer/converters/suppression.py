"""Non-maximum suppression over all rows at once.

The kernels pick a box, strike out those that overlap it, and go on. Here all rows pick their n-th box together: the
steps stand in the graph one after another, as many as boxes can be picked, so that there is no loop. Order and
rounding are those of the CPU kernel (non_max_suppression_op.cc): of equal scores the first, and overlaps from the
same products and quotients in float32, so that the same boxes are picked.

Rows pick different numbers of boxes. Padded to ``max_output_size``, as the op can do itself, all are of one size; else
the result is one of differing length. (tf.image.non_max_suppression_padded is no op: it is loops of TensorFlow's
own, and they are vectorized as loops.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, stacked, wrap, wrap_differing
from vectorizer.converters.constants import known_operand
from vectorizer.converters.folding import batch_folding, sizes
from vectorizer.differing import Differing

__all__ = ["CONVERTERS"]

#: Each step adds about 25 nodes to the graph.
_MOST_STEPS = 200
_NEVER_PADDED = frozenset({"NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3"})


def _constant(pfor_input: Any, index: int) -> Any:
    """Return an operand's value, which must be a constant of the function."""
    value = known_operand(pfor_input, index)
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
    op_type = pfor_input.op_type
    n_wanted = int(_constant(pfor_input, 2))
    iou_limit = (
        pfor_input.get_attr("iou_threshold") if op_type == "NonMaxSuppression" else float(_constant(pfor_input, 3))
    )
    if not 0 <= iou_limit <= 1:
        not_for_these(f"iou_threshold must be in [0, 1], not {iou_limit}")
    if with_scores and _constant(pfor_input, 5) != 0:
        not_for_these("soft suppression lowers scores one by one, in an order that the rows do not share")
    corners, scores = (stacked(pfor_input.input(index), pfor_input) for index in (0, 1))
    n_boxes = sizes(scores)[1]
    if not isinstance(n_boxes, int) or min(n_wanted, n_boxes) > _MOST_STEPS:
        not_for_these(f"boxes are picked one after another, at most {_MOST_STEPS}; lower max_output_size")
    score_limit = _score_limit(pfor_input, scores.dtype)
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
    picked = [(indices, tf.int32), *([(picked_scores, scores.dtype)] if with_scores else [])]
    if op_type in _NEVER_PADDED or not pfor_input.get_attr("pad_to_max_output_size"):
        # One place at least, as in all values of differing length.
        made = [tf.stack(values, -1) if values else tf.zeros([rows, 1], dtype) for values, dtype in picked]
        results = [wrap_differing(Differing(value, (n_picked,))) for value in made]
    else:
        made = [tf.stack(values, -1) if values else tf.zeros([rows, 0], dtype) for values, dtype in picked]
        n_missing = max(n_wanted - n_boxes, 0)
        results = [wrap(tf.pad(value, [(0, 0), (0, n_missing)]), stacked=True) for value in made]
    return results if op_type in _NEVER_PADDED else [*results, wrap(n_picked, stacked=True)]


def _score_limit(pfor_input: Any, dtype: tf.DType) -> tf.Tensor:
    if pfor_input.op_type in ("NonMaxSuppression", "NonMaxSuppressionV2"):
        return tf.constant(dtype.min, dtype)
    limit = pfor_input.input(4)
    return limit.t[:, tf.newaxis] if limit.is_stacked else limit.t


CONVERTERS: dict[str, Converter] = {
    "CombinedNonMaxSuppression": batch_folding({0, 1}),
    **dict.fromkeys(sorted(_NEVER_PADDED), lambda pfor_input: _pick(pfor_input, with_scores=False)),
    "NonMaxSuppressionV4": lambda pfor_input: _pick(pfor_input, with_scores=False),
    "NonMaxSuppressionV5": lambda pfor_input: _pick(pfor_input, with_scores=True),
}

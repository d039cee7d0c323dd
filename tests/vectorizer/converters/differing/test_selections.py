"""What is kept of an example: each row its own number of elements, none of another row's, none of the padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless

#: One bucket is enough for most: building a graph is what takes the time.
BUCKETS = (4,)
NUMBERS = np.array(
    [[1.5, -1, 2, 0.25, 3], [-1, -2, -3, -4, -5], [1, 2, 3, 4, 5], [np.nan, 1, -1, np.inf, 0]], np.float32
)
CODES = np.array([[3, 1, 3, 3, 2], [0, 0, 0, 0, 0], [1, 2, 3, 4, 5], [2, 1, 2, 1, 9]], np.int32)


def test_each_row_gets_the_elements_of_its_own_mask() -> None:
    def kept(x: tf.Tensor) -> dict[str, tf.Tensor]:
        table = tf.stack([x, 2 * x], 1)
        return {
            "elements": tf.boolean_mask(x, x > 0),
            "rows": table[x > 0],
            "places": tf.where(table > 1),
            "picked": tf.gather(table, tf.where(x > 0)[:, 0]),
            "at": tf.gather_nd(table, tf.where(table > 1)),
        }

    vectorized = check_loopless(kept, {"x": NUMBERS}, buckets=BUCKETS)
    assert [output.dims for output in vectorized.outputs] == [(None,), (None, 2), (None, 2), (None, 2), (None,)]
    assert vectorized.is_for_xla


def test_kept_elements_compile_under_xla() -> None:
    from vectorizer import vectorize

    vectorized = vectorize(lambda x: tf.boolean_mask(x, x > 0) * 2, inputs={"x": tf.TensorSpec([5])}, buckets=(4,))
    graph = vectorized.bucket(4)
    compiled = tf.function(lambda x: graph(x=x), jit_compile=True, autograph=False)(tf.constant(NUMBERS))
    assert compiled["output__length_0"].numpy().tolist() == [4, 0, 5, 2]
    assert compiled["output"].numpy()[0, :4].tolist() == [3.0, 4.0, 0.5, 6.0]


def test_counts_of_distinct_elements_differ_from_row_to_row() -> None:
    def distinct(x: tf.Tensor) -> dict[str, tf.Tensor]:
        values, index, counts = tf.unique_with_counts(x)
        return {"values": values, "index": index, "counts": counts, "n": tf.size(values), "few": tf.unique(values)[0]}

    vectorized = check_loopless(distinct, {"x": CODES}, buckets=BUCKETS)
    assert [output.dims for output in vectorized.outputs] == [(None,), (5,), (None,), (), (None,)]
    assert not vectorized.is_for_xla


def test_what_is_not_a_number_is_distinct_from_itself_as_in_the_function() -> None:
    x = np.array([[np.nan, np.nan, 0.0, -0.0, 1], [1, 1, 1, 1, 1], [2, np.nan, 2, 3, 3], [0, 1, 0, 1, 0]], np.float32)
    check_loopless(lambda x: tf.unique(x)[1], {"x": x}, buckets=BUCKETS)


def test_differences_and_partitions_of_each_row() -> None:
    def parts(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        missing = tf.raw_ops.ListDiff(x=x, y=y)
        return [missing.out, missing.idx, *tf.dynamic_partition(tf.stack([x, y], 1), x % 3, 3)]

    check_loopless(parts, {"x": CODES, "y": CODES[::-1].copy()}, buckets=BUCKETS)


def test_boxes_are_picked_without_padding() -> None:
    rng = np.random.default_rng(3)
    corners = rng.random((4, 6, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + 0.4], -1)
    scores = rng.normal(size=(4, 6)).astype(np.float32)

    def best(boxes: tf.Tensor, scores: tf.Tensor) -> dict[str, Any]:
        picked = tf.image.non_max_suppression(boxes, scores, 4, iou_threshold=0.3, score_threshold=0.0)
        older = tf.raw_ops.NonMaxSuppressionV2(boxes=boxes, scores=scores, max_output_size=4, iou_threshold=0.3)
        oldest = tf.raw_ops.NonMaxSuppression(boxes=boxes, scores=scores, max_output_size=9, iou_threshold=0.3)
        newest = tf.raw_ops.NonMaxSuppressionV5(
            boxes=boxes,
            scores=scores,
            max_output_size=4,
            iou_threshold=0.3,
            score_threshold=0.0,
            soft_nms_sigma=0.0,
        )
        return {
            "boxes": tf.gather(boxes, picked),
            "scores": newest.selected_scores,
            "n": newest.valid_outputs,
            "older": older,
            "oldest": oldest,
        }

    vectorized = check_loopless(best, {"boxes": boxes, "scores": scores}, buckets=BUCKETS)
    assert vectorized.outputs[0].dims == (None, 4)

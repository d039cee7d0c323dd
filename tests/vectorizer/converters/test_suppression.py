"""Non-maximum suppression picks the kernel's boxes, for all rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import ONE_BUCKET, check_loopless
from tests.vectorizer.oracle import spec
from vectorizer import LoopedOpError, vectorize

RNG = np.random.default_rng(0)
N_BOXES = 8
BOXES = RNG.uniform(size=(8, N_BOXES, 4)).astype(np.float32)
#: Scores of few values, so that most are tied.
SCORES = RNG.integers(0, 4, size=(8, N_BOXES)).astype(np.float32) / 4
#: Boxes on a coarse grid, so that many overlap by exactly 0, 1/3, 1/2 and 1.
GRID = RNG.integers(0, 4, size=(8, N_BOXES, 4)).astype(np.float32)


def picked(
    boxes: tf.Tensor, scores: tf.Tensor, n: int = 5, iou: float = 0.5, score: Any = -np.inf, *, pad: bool = True
) -> Any:
    return tuple(
        tf.raw_ops.NonMaxSuppressionV4(
            boxes=boxes,
            scores=scores,
            max_output_size=n,
            iou_threshold=tf.constant(iou, scores.dtype),
            score_threshold=tf.cast(score, scores.dtype),
            pad_to_max_output_size=pad,
        )
    )


#: Every second row of either kind.
BOTH = np.stack([BOXES[:4], GRID[:4]], 1).reshape(BOXES.shape)


@pytest.mark.parametrize("iou", [0.0, 1.0 / 3, 0.5, 1.0])
@pytest.mark.parametrize("score", [-np.inf, 0.25])
def test_boxes_and_their_number_are_the_kernels(iou: float, score: float) -> None:
    buckets = None if iou == 0.5 else ONE_BUCKET
    check_loopless(lambda b, s: picked(b, s, iou=iou, score=score), {"b": BOTH, "s": SCORES}, buckets=buckets)


@pytest.mark.parametrize("n", [0, 1, N_BOXES, N_BOXES + 3])
def test_number_of_boxes_that_are_wanted(n: int) -> None:
    check_loopless(lambda b, s: picked(b, s, n), {"b": BOXES, "s": SCORES}, buckets=ONE_BUCKET if n > 1 else None)


def test_one_operand_is_shared_by_all_rows() -> None:
    boxes, scores = tf.constant(GRID[0]), tf.constant(SCORES[0])
    check_loopless(lambda s: picked(boxes, s), {"s": SCORES})
    check_loopless(lambda b: picked(b, scores), {"b": GRID})


def test_score_threshold_of_each_row() -> None:
    check_loopless(
        lambda b, s, t: picked(b, s, score=t), {"b": GRID, "s": SCORES, "t": np.linspace(-1, 1, 8, dtype=np.float32)}
    )


def test_halves() -> None:
    check_loopless(picked, {"boxes": BOXES.astype(np.float16), "scores": SCORES.astype(np.float16)})


@pytest.mark.parametrize("threshold", [-np.inf, 0.0])
def test_numbers_that_are_none_and_infinities(threshold: float) -> None:
    boxes, scores = GRID.copy(), SCORES.copy() - 0.25
    boxes[0, 3] = np.nan
    boxes[1, :, 2] = np.inf
    boxes[2, ::2] *= 1e30
    boxes[3, 4, 1] = np.nan
    scores[0, 0] = np.nan
    scores[1, 2:5] = np.inf
    scores[2, 1] = -np.inf
    scores[4] = np.nan
    buckets = None if threshold else ONE_BUCKET
    check_loopless(lambda b, s: picked(b, s, 9, score=threshold), {"b": boxes, "s": scores}, buckets=buckets)


def test_with_scores() -> None:
    def predict(b: tf.Tensor, s: tf.Tensor) -> Any:
        return tuple(
            tf.raw_ops.NonMaxSuppressionV5(
                boxes=b,
                scores=s,
                max_output_size=7,
                iou_threshold=0.4,
                score_threshold=0.1,
                soft_nms_sigma=0.0,
                pad_to_max_output_size=True,
            )
        )

    check_loopless(predict, {"b": GRID, "s": SCORES})


@pytest.mark.parametrize("pad_per_class", [False, True])
def test_combined_over_classes(*, pad_per_class: bool) -> None:
    boxes = RNG.uniform(size=(8, 1, 9, 1, 4)).astype(np.float32)
    scores = RNG.uniform(size=(8, 1, 9, 3)).astype(np.float32)
    check_loopless(
        lambda b, s: tuple(tf.image.combined_non_max_suppression(b, s, 3, 5, 0.5, 0.2, pad_per_class=pad_per_class)),
        {"b": boxes, "s": scores},
    )


INPUTS = {"b": spec(N_BOXES, 4), "s": spec(N_BOXES)}


def test_soft_suppression_is_refused_by_name() -> None:
    def predict(b: tf.Tensor, s: tf.Tensor) -> Any:
        return tf.raw_ops.NonMaxSuppressionV5(
            boxes=b,
            scores=s,
            max_output_size=7,
            iou_threshold=0.4,
            score_threshold=0.1,
            soft_nms_sigma=0.5,
            pad_to_max_output_size=True,
        ).selected_scores

    with pytest.raises(LoopedOpError, match=r"NonMaxSuppressionV5 .*soft suppression"):
        vectorize(predict, inputs=INPUTS, buckets=(2,))


def test_too_many_steps_are_refused_by_name() -> None:
    with pytest.raises(LoopedOpError, match=r"NonMaxSuppressionV4 .*at most 200"):
        vectorize(lambda b, s: picked(b, s, 201)[1], inputs={"b": spec(500, 4), "s": spec(500)}, buckets=(2,))

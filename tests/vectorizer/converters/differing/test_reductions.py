"""Padding never counts: reductions of what each row kept equal those of the row alone."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.vectorizer.converters.differing.test_selections import BUCKETS, CODES, NUMBERS
from tests.vectorizer.converters.loopless import check_loopless

#: The last row keeps an infinity.
FINITE = np.where(np.isfinite(NUMBERS), NUMBERS, 7).astype(np.float32)


def test_reductions_of_kept_elements() -> None:
    def reduced(x: tf.Tensor) -> dict[str, tf.Tensor]:
        kept = tf.boolean_mask(x, x > 0)
        table = tf.boolean_mask(tf.stack([x, -x], 1), x > 0)
        return {
            "sum": tf.reduce_sum(kept),
            "mean": tf.reduce_mean(kept),
            "std": tf.math.reduce_std(kept),
            "max": tf.reduce_max(kept),
            "min": tf.reduce_min(-kept),
            "product": tf.reduce_prod(kept),
            "log_sum": tf.reduce_logsumexp(kept),
            "all": tf.reduce_all(kept > 1),
            "any": tf.reduce_any(kept > 1),
            "softmax": tf.nn.softmax(kept),
            "norm": tf.norm(kept),
            "columns": tf.reduce_mean(table, 0),
            "each": tf.reduce_max(table, 1, keepdims=True),
            "half": tf.nn.l2_loss(kept),
        }

    vectorized = check_loopless(reduced, {"x": FINITE}, buckets=BUCKETS)
    assert vectorized.is_for_xla


def test_running_totals_orders_and_reversals_of_kept_elements() -> None:
    def ordered(x: tf.Tensor) -> dict[str, tf.Tensor]:
        kept = tf.boolean_mask(x, x > 0)
        two = tf.concat([kept, [0.5, 0.25]], 0)
        return {
            "sums": tf.cumsum(kept),
            "rest": tf.cumsum(kept, reverse=True, exclusive=True),
            "products": tf.math.cumprod(kept, reverse=True),
            "sorted": tf.sort(kept),
            "order": tf.argsort(kept, direction="DESCENDING"),
            "reversed": tf.reverse(kept, [0]),
            "top": tf.math.top_k(two, k=2).values,
            "best": tf.argmax(two),
            "worst": tf.argmin(two),
        }

    check_loopless(ordered, {"x": FINITE}, buckets=BUCKETS)


def test_whole_numbers_are_divided_and_averaged_without_their_padding() -> None:
    def whole(x: tf.Tensor) -> dict[str, tf.Tensor]:
        kept = tf.boolean_mask(x, x > 1)
        return {
            "quotients": 12 // kept,
            "mean": tf.reduce_mean(tf.concat([kept, [3]], 0)),
            "counts": tf.math.bincount(kept, minlength=4, maxlength=4),
            "hot": tf.reduce_sum(tf.one_hot(tf.unique(x)[0], 6), 0),
        }

    check_loopless(whole, {"x": CODES}, buckets=BUCKETS)

"""Ops that have no batched form for a value of differing length: named, and looped by permission."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.vectorizer.converters.differing.test_slices import X
from tests.vectorizer.converters.loopless import refused_ops
from tests.vectorizer.oracle import check


def _inverse(x: tf.Tensor) -> tf.Tensor:
    kept = tf.boolean_mask(x, x > 0)
    return tf.signal.fft(tf.cast(kept, tf.complex64))


def test_an_op_without_a_form_for_differing_lengths_is_refused_by_name_and_line() -> None:
    refused = refused_ops(_inverse, x=tf.TensorSpec([5]))
    assert list(refused) == ["FFT"]
    assert "length differs from example to example" in refused["FFT"]
    assert "test_permission.py" in refused["FFT"]


def test_by_permission_each_row_runs_on_its_true_elements() -> None:
    filled = np.where(X > 0, X, 1).astype(np.float32)
    filled[1, 2:] = -1
    vectorized = check(_inverse, {"x": filled}, buckets=(4,), n_rows=(4, 2), allow_looped=["FFT"])
    assert [record.op for record in vectorized.certificate.looped] == ["FFT"]
    assert not vectorized.is_for_xla


def test_results_that_differ_in_size_can_be_looped_by_permission() -> None:
    def common(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.sets.intersection(x[tf.newaxis], y[tf.newaxis]).values

    x = np.array([[1, 2, 3], [4, 4, 4], [5, 6, 7], [1, 1, 2]], np.int32)
    y = np.array([[3, 2, 9], [5, 6, 7], [7, 6, 5], [2, 2, 2]], np.int32)
    assert list(refused_ops(common, x=tf.TensorSpec([3], tf.int32), y=tf.TensorSpec([3], tf.int32))) == [
        "DenseToDenseSetOperation"
    ]
    check(common, {"x": x, "y": y}, buckets=(4,), n_rows=(4,), allow_looped=["DenseToDenseSetOperation"])

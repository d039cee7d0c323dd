"""Inputs of variable length whose results differ in length: padding of the one never is an element of the other."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vectorizer import DeclarationError, Derivative, Length, ParityError, vectorize

INPUTS = {"x": tf.TensorSpec([None]), "n": tf.TensorSpec([], tf.int32)}
LENGTHS = {"x": Length(max=6, buckets=(3, 6), length_input="n")}


def test_what_is_kept_of_a_variable_input_ends_at_its_true_length() -> None:
    def kept(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        is_own = tf.range(tf.size(x)) < n
        return {"kept": tf.boolean_mask(x, is_own & (x >= 0)), "half": x[: n // 2], "all": x * 2}

    vectorized = vectorize(kept, inputs=INPUTS, lengths=LENGTHS, buckets=(2,))
    rows = [np.array(values, np.float32) for values in ([], [1], [0, -1, 0], [-1, -1, -1, -1], [3, 0, 1, 2, 0, 0])]
    got = vectorized(x=rows)
    for index, row in enumerate(rows):
        assert got["kept"][index].tolist() == row[row >= 0].tolist()
        assert got["half"][index].tolist() == row[: len(row) // 2].tolist()
        assert got["all"][index].tolist() == (row * 2).tolist()


def test_a_mask_that_keeps_padding_is_refused() -> None:
    with pytest.raises(ParityError, match="depends on padding"):
        vectorize(lambda x, n: tf.boolean_mask(x, x >= 0), inputs=INPUTS, lengths=LENGTHS, buckets=(2,))


def test_a_derivative_of_what_differs_in_length_is_refused_and_of_its_sum_is_not() -> None:
    def kept(x: tf.Tensor) -> dict[str, tf.Tensor]:
        elements = tf.boolean_mask(x, x > 0)
        return {"elements": elements, "energy": tf.reduce_sum(elements**2)}

    inputs = {"x": tf.TensorSpec([3])}
    with pytest.raises(DeclarationError, match=r"output 'elements' is .*float outputs: energy"):
        vectorize(kept, inputs=inputs, buckets=(2,), derivatives=[Derivative(kind="jacobian", output="elements")])
    vectorized = vectorize(
        kept, inputs=inputs, buckets=(2,), derivatives=[Derivative(kind="gradient", output="energy", name="slope")]
    )
    x = np.array([[1, -1, 2], [-1, -2, -3]], np.float32)
    np.testing.assert_allclose(vectorized.derivatives["slope"](x=x), np.where(x > 0, 2 * x, 0))

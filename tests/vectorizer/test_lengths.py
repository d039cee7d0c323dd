"""Inputs whose length differs from example to example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import Axis, DeclarationError, Length, ParityError, ProbeError, vectorize

INT = tf.int32


def sequences(*lengths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=length).astype(np.float32) for length in lengths]


def test_every_length_from_nothing_to_the_largest_is_answered() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"mean": tf.reduce_sum(x) / tf.cast(tf.maximum(n, 1), tf.float32), "doubled": x * 2.0}

    vectorized = vectorize(
        predict,
        inputs={"x": spec(None), "n": spec(dtype=INT)},
        lengths={"x": Length(max=10, buckets=(3, 10), length_input="n")},
        buckets=(1, 4),
    )
    rows = sequences(*range(11))
    got = vectorized(x=rows)
    for index, row in enumerate(rows):
        np.testing.assert_allclose(got["mean"][index], row.sum() / max(len(row), 1), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(got["doubled"][index], row * 2.0)
    assert {(record.rows, record.lengths) for record in vectorized.certificate.parity} == {
        (1, (3,)),
        (1, (10,)),
        (4, (3,)),
        (4, (10,)),
    }


def test_state_is_carried_for_the_true_length_and_no_longer() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        state = tf.constant(1.0)
        for t in tf.range(n):
            state = state * 0.5 + x[t] + 1.0
        return state

    vectorized = vectorize(
        predict,
        inputs={"x": spec(None), "n": spec(dtype=tf.int64)},
        lengths={"x": Length(max=5, length_input="n")},
        buckets=(3,),
    )
    rows = sequences(0, 5, 1, 3)
    for row, got in zip(rows, vectorized(x=rows), strict=True):
        np.testing.assert_allclose(got, predict(tf.constant(row), tf.constant(len(row), tf.int64)), rtol=1e-5)


def test_inputs_that_share_a_length_input_have_one_length() -> None:
    vectorized = vectorize(
        lambda x, y, n: {"sum": x + y, "dot": tf.reduce_sum(x * y), "n": n},
        inputs={"x": spec(None), "y": spec(None), "n": spec(dtype=tf.int64)},
        lengths={name: Length(max=6, buckets=(2, 6), length_input="n") for name in "xy"},
        buckets=(2,),
    )
    (axis,) = vectorized.axes
    assert axis.dims == (("x", 0), ("y", 0))
    x, y = sequences(1, 6, 0), sequences(1, 6, 0)
    got = vectorized(x=x, y=y)
    assert got["n"].tolist() == [1, 6, 0]
    for row in range(3):
        np.testing.assert_allclose(got["sum"][row], x[row] + y[row], rtol=1e-6)
    for wrong in ({"x": [[1, 2]], "y": [[1]]}, {"x": [[1]], "y": [[1, 2]]}):
        with pytest.raises(DeclarationError, match="row 0: inputs that share a length differ"):
            vectorized(**wrong)


def test_two_lengths_are_told_apart() -> None:
    """With as many length buckets as probes, both lengths must still not walk them in step."""
    buckets = tuple(range(1, 21))
    vectorized = vectorize(
        lambda x, y: {"first": x, "second": y},
        inputs={"x": spec(None), "y": spec(None)},
        lengths={"x": Length(max=40, buckets=(*buckets, 40)), "y": Length(max=40, buckets=(*buckets[:1], 40))},
        buckets=(1,),
    )
    assert [output.dims[0].name for output in vectorized.outputs if isinstance(output.dims[0], Axis)] == [
        "x_length",
        "y_length",
    ]
    got = vectorized(x=sequences(3, 0), y=sequences(1, 2))
    assert [len(row) for row in got["first"]] == [3, 0]
    assert [len(row) for row in got["second"]] == [1, 2]


def test_variable_dimension_need_not_be_the_first() -> None:
    vectorized = vectorize(
        lambda x: {"t": tf.transpose(x), "outer": x[0][:, None] * x[1][None]},
        inputs={"x": spec(2, None)},
        lengths={"x": Length(max=4, buckets=(4,))},
        buckets=(2,),
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = vectorized(x=[x, x[:, :0]])
    np.testing.assert_array_equal(got["t"][0], x.T)
    np.testing.assert_array_equal(got["outer"][0], np.outer(x[0], x[1]))
    assert got["t"][1].shape == (0, 2)


def test_strings_of_variable_number() -> None:
    vectorized = vectorize(
        lambda words: tf.reverse(words, [0])[:0],
        inputs={"words": spec(None, dtype=tf.string)},
        lengths={"words": Length(max=3, buckets=(3,))},
        buckets=(2,),
    )
    assert [row.shape for row in [np.asarray(r) for r in vectorized(words=[[b"a"], []])]] == [(0,), (0,)]


def test_fixed_output_that_happens_to_have_the_largest_length_is_not_cut() -> None:
    vectorized = vectorize(
        lambda x: tf.reduce_sum(x) + tf.zeros([4]),
        inputs={"x": spec(None)},
        lengths={"x": Length(max=4, buckets=(4,))},
        buckets=(1,),
    )
    assert vectorized(x=[[1.0, 2.0]]).shape == (1, 4)


def test_no_rows_of_variable_length() -> None:
    vectorized = vectorize(
        lambda x: x, inputs={"x": spec(None)}, lengths={"x": Length(max=4, buckets=(4,))}, buckets=(1,)
    )
    assert vectorized(x=[]) == []
    with pytest.raises(DeclarationError, match="row 1: input 'x' has 5 on its variable dimension, expected at most 4"):
        vectorized(x=sequences(4, 5))


@pytest.mark.parametrize(
    "depends",
    [
        lambda x: tf.reduce_mean(x) * 1.0,
        lambda x: tf.reduce_max(x) * 1.0,
        lambda x: tf.nn.softmax(x) * 1.0,
        lambda x: tf.shape(x)[0],
    ],
)
def test_result_that_depends_on_padding_is_refused_with_the_way_out(depends: Any) -> None:
    with pytest.raises((ParityError, DeclarationError), match="length_input"):
        vectorize(depends, inputs={"x": spec(None)}, lengths={"x": Length(max=4, buckets=(2, 4))}, buckets=(2,))


def test_output_whose_length_is_another_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"dimension 0 of output 'output' has sizes.*follows no declared length"):
        vectorize(
            lambda x: tf.concat([x, x], 0),
            inputs={"x": spec(None)},
            lengths={"x": Length(max=4, buckets=(4,))},
            buckets=(1,),
        )


def test_bucket_that_no_answered_example_fits_is_named() -> None:
    with pytest.raises(ProbeError, match="bucket 1x2 can't be checked"):
        vectorize(
            lambda x: tf.gather(x, 5),
            inputs={"x": spec(None)},
            lengths={"x": Length(max=9, buckets=(2, 9))},
            buckets=(1,),
        )

"""What a function is asked when it is checked, and what is made of its silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import Length, Padding, ParityError, trace_example, vectorize
from vectorizer.batch_function import BatchFunction
from vectorizer.lengths import length_axes
from vectorizer.probes import ProbeKind, Probes, make_probes
from vectorizer.sizes import sizes_vary


def asked(function: Any, *, lengths: Any = None, **inputs: tf.TensorSpec) -> Probes:
    return make_probes(trace_example(function, inputs), length_axes(inputs, lengths or {}), examples=(), seed=0)


def values(found: Probes, name: str) -> np.ndarray:
    return np.concatenate([probe.example[name].reshape(-1) for probe in found.answered])


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_floats_are_asked_with_all_that_breaks_code(dtype: tf.DType) -> None:
    found = values(asked(lambda x: x + 0, x=spec(3, dtype=dtype)), "x").astype(np.float64)
    assert np.isnan(found).any()
    assert {np.inf, -np.inf, 0.0, 1.0, -1.0} <= set(found.tolist())
    assert np.any(np.signbit(found) & (found == 0))
    assert np.nanmax(np.abs(found[np.isfinite(found)])) >= 2.0**14
    assert 0 < np.nanmin(np.abs(found[found != 0])) <= 2.0**-24


def test_integers_and_text_are_asked_with_theirs() -> None:
    found = asked(lambda i, s: (i, s), i=spec(2, dtype=tf.int16), s=spec(2, dtype=tf.string))
    assert {-(2**15), 2**15 - 1, 0, -1} <= set(values(found, "i").tolist())
    texts = set(values(found, "s").tolist())
    assert b"" in texts
    assert any(b"\0" in text for text in texts)
    assert b"\xff\xfe" in texts


def test_each_sort_of_input_is_extreme_beside_ordinary_others() -> None:
    found = asked(lambda x, i: (x, i), x=spec(2), i=spec(dtype=tf.int32))
    extreme = [probe for probe in found.answered if probe.kind is ProbeKind.EXTREME]
    assert any(np.isnan(probe.example["x"]).all() and 0 <= probe.example["i"] < 8 for probe in extreme)
    assert any(np.isfinite(probe.example["x"]).all() and probe.example["i"] == 2**31 - 1 for probe in extreme)


def test_extreme_examples_stand_between_ordinary_ones() -> None:
    kinds = [probe.kind is ProbeKind.EXTREME for probe in asked(lambda x: x * 2.0, x=spec(2)).answered]
    assert kinds[:6] == [False, True, False, True, False, True]


def test_integer_limits_are_not_tried_where_a_size_depends_on_a_value() -> None:
    inputs = {"n": spec(dtype=tf.int32)}
    assert sizes_vary(trace_example(lambda n: tf.reduce_sum(tf.zeros([n])), inputs).graph)
    assert not sizes_vary(trace_example(lambda n: tf.zeros([3]) + tf.cast(n, tf.float32), inputs).graph)
    found = asked(lambda n: tf.reduce_sum(tf.zeros([n])), **inputs)
    assert values(found, "n").max() == 1000


def test_extreme_example_without_an_end_is_stopped_and_recorded() -> None:
    def halve(x: tf.Tensor) -> tf.Tensor:
        while x > 1.0:
            x = x / 2.0
        return x

    vectorized = vectorize(halve, inputs={"x": spec()}, buckets=(2,))
    (example,) = vectorized.certificate.probes.unending
    assert "inf" in example
    assert f"does not end on {example}" in vectorized.certificate.to_text()
    np.testing.assert_allclose(vectorized(x=[3.0, -5.0]), [0.75, -5.0])


def test_every_length_is_asked_where_they_are_few_and_around_buckets_else() -> None:
    few = asked(lambda x: x * 2.0, x=spec(None), lengths={"x": Length(max=20)})
    assert {length for probe in few.answered for length in probe.lengths} == set(range(21))
    many = asked(lambda x: x * 2.0, x=spec(None), lengths={"x": Length(max=100, buckets=(40, 100))})
    assert {0, 1, 39, 40, 41, 50, 99, 100} <= {length for probe in many.answered for length in probe.lengths}


def test_example_that_rounding_decides_is_left_out_and_a_clear_difference_is_not() -> None:
    """The sine of 2^60 hangs on the last digits of what it is the sine of."""
    certificate = vectorize(
        lambda x: tf.sin(tf.linalg.matvec(tf.constant([[0.1, 0.2, 0.3], [0.3, -0.7, 0.1]]), x) * 1.1),
        inputs={"x": spec(3)},
        buckets=(1, 8),
    ).certificate
    assert all(record.outputs[0].max_relative < 1e-4 for record in certificate.parity)
    assert all(record.n_unstable <= 5 for record in certificate.parity)


def test_not_a_number_may_be_treated_as_the_optimizer_likes_where_values_are_ordered() -> None:
    """A relu that is fused into the convolution before it makes 0 of it, and max_pool drops what another relu keeps."""
    kernel = tf.Variable(tf.random.stateless_normal([3, 3, 1, 4], [1, 2]))

    def network(x: tf.Tensor) -> tf.Tensor:
        features = tf.nn.relu(tf.nn.conv2d(x[None], kernel, 1, "SAME") + tf.constant([0.1, 0.2, 0.3, 0.4]))
        return tf.nn.max_pool2d(features, 2, 2, "VALID")[0]

    (record,) = vectorize(network, inputs={"x": spec(8, 8, 1)}, buckets=(2,)).certificate.parity
    assert record.outputs[0].max_relative < 1e-4
    assert record.n_examples > 30 > record.n_unstable


def silence_is_noise(x: tf.Tensor) -> tf.Tensor:
    """A model for batches that scales what differs from the mean to 1: of a constant example, rounding errors alone."""
    shuffled = np.random.default_rng(0)
    column = shuffled.normal(size=64)
    weights = tf.constant(np.stack([shuffled.permutation(column) for _ in range(16)], axis=1), tf.float32)
    features = tf.matmul(x + 0.1, weights)
    centred = features - tf.reduce_mean(features, axis=1, keepdims=True)
    return centred / tf.reduce_max(tf.abs(centred), axis=1, keepdims=True)


def test_constant_example_that_a_model_for_batches_answers_by_rounding_is_left_out() -> None:
    certificate = vectorize(
        BatchFunction(silence_is_noise, name="scaled"), inputs={"x": spec(64)}, buckets=(4,)
    ).certificate
    (record,) = certificate.parity
    assert 1 <= record.n_unstable <= 12
    assert record.outputs[0].max_relative < 1e-3
    with pytest.raises(ParityError, match="hangs on rounding"):
        vectorize(lambda x: silence_is_noise(x[None])[0], inputs={"x": spec(64)}, buckets=(4,))


# Padding.

_SEQUENCE = {"x": spec(None), "n": spec(dtype=tf.int32)}
_TOLD = {"x": Length(max=6, buckets=(3, 6), length_input="n")}


def masked_mean(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.where(tf.range(tf.size(x)) < n, x, 0.0)) / tf.cast(tf.maximum(n, 1), tf.float32)


def plain_mean(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(x) / tf.cast(tf.maximum(n, 1), tf.float32)


def test_whether_other_padding_than_zeros_matters_is_recorded() -> None:
    for function, found in ((masked_mean, Padding.IGNORED), (plain_mean, Padding.ZEROS)):
        parity = vectorize(function, inputs=_SEQUENCE, lengths=_TOLD, buckets=(2,)).certificate.parity
        assert [record.padding for record in parity] == [found, found]
    whole = vectorize(lambda x: x + 1.0, inputs={"x": spec(2)}, buckets=(2,)).certificate.parity
    assert [record.padding for record in whole] == [Padding.NONE]


@pytest.mark.parametrize(
    ("lengths", "inputs", "step"),
    [
        (_TOLD, _SEQUENCE, "use 'n' in the function"),
        ({"x": Length(max=6, buckets=(3, 6))}, {"x": spec(None)}, "take the true length as an input"),
    ],
)
def test_answer_that_depends_on_padding_is_refused_with_both_lengths_and_answers(
    lengths: Any, inputs: Any, step: str
) -> None:
    def mean(x: tf.Tensor, n: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        return {"mean": tf.reduce_sum(x) / tf.cast(tf.maximum(tf.size(x), 1), tf.float32)}

    with pytest.raises(ParityError) as caught:
        vectorize(mean, inputs=inputs, lengths=lengths, buckets=(2,))
    message = str(caught.value)
    assert "Output 'mean' depends on padding" in message
    assert "padded to 3" in message
    assert ": expected " in message
    assert ", got " in message
    assert step in message

"""What can't be served by the batch is refused by name, with the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import check, spec
from tests.vectorizer.refusing import X, refuse
from vectorizer import (
    ConversionError,
    DeclarationError,
    LoopedOpError,
    OpClass,
    ParityError,
    ProbeError,
    TraceError,
    VectorizerError,
    vectorize,
)

THIS_FILE = Path(__file__).name


def line_of(function: Callable[..., Any], text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    return f"{THIS_FILE}:{first + next(index for index, line in enumerate(lines) if text in line)}"


# Ops that would run once for each row.


def test_looped_op_is_refused_with_its_type_and_the_users_line() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        y = x * 2.0
        return tf.raw_ops.NearestNeighbors(points=y[:, None], centers=y[:, None], k=2)[1]

    with pytest.raises(LoopedOpError) as caught:
        vectorize(predict, inputs=X, buckets=(2,))
    place = line_of(predict, "NearestNeighbors")
    assert caught.value.ops == {"NearestNeighbors": (place,)}
    assert f"op NearestNeighbors ({place}) would run once for each row" in str(caught.value)
    assert "allow_looped=['NearestNeighbors']" in str(caught.value)


def test_all_looped_ops_are_named_together() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        nearest = tf.raw_ops.NearestNeighbors(points=x[:, None], centers=x[:, None], k=1)[0][:, 0]
        return tf.cast(tf.strings.length(tf.io.serialize_tensor(x)), tf.int64) + nearest

    message = refuse(predict, LoopedOpError)
    assert "op SerializeTensor" in message
    assert "op NearestNeighbors" in message


def test_allowed_op_runs_looped_and_the_certificate_says_so() -> None:
    x = np.random.default_rng(0).normal(size=(7, 3, 3)).astype(np.float32)
    vectorized = check(
        lambda x: tf.raw_ops.NearestNeighbors(points=x, centers=x, k=2)[1],
        {"x": x},
        rtol=1e-3,
        allow_looped=["NearestNeighbors"],
    )
    (record,) = vectorized.certificate.looped
    assert (record.op, record.kind, record.count) == ("NearestNeighbors", OpClass.LOOPED, 1)
    assert record.where[0].startswith(THIS_FILE)
    assert record.reason
    assert vectorized.certificate.loops_batched > vectorized.certificate.loops_unbatched


def test_allowing_one_op_allows_no_other() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        nearest = tf.raw_ops.NearestNeighbors(points=x[:, None], centers=x[:, None], k=1)[1]
        return nearest + tf.cast(tf.strings.length(tf.io.serialize_tensor(x)), tf.float32)

    with pytest.raises(LoopedOpError) as caught:
        vectorize(predict, inputs=X, buckets=(2,), allow_looped=["NearestNeighbors"])
    assert set(caught.value.ops) == {"SerializeTensor"}
    assert "'NearestNeighbors'" in refuse(predict, LoopedOpError, allow_looped=["SerializeTensor"])


@pytest.mark.parametrize(
    ("function", "inputs", "op"),
    [
        (
            lambda x: tf.nn.depthwise_conv2d(x[None], tf.ones([2, 2, 1, 1]), [1, 1, 1, 1], "SAME")[0],
            {"x": spec(4, 4, 1)},
            "DepthwiseConv2dNative",
        ),
        (lambda x: tf.image.resize(x, [2, 2]), {"x": spec(4, 4, 1)}, "ResizeBilinear"),
        (
            lambda x, f: tf.nn.conv2d(x[None], f, 1, "SAME")[0],
            {"x": spec(4, 4, 1), "f": spec(2, 2, 1, 1)},
            "Conv2D",
        ),
        (lambda x: tf.boolean_mask(x, x > 0.0), {"x": spec(3)}, "Where"),
    ],
)
def test_op_is_vectorized_truly_or_refused_never_looped_in_silence(
    function: Callable[..., Any], inputs: dict[str, tf.TensorSpec], op: str
) -> None:
    """Hidden loops: with stock pfor these are slow without a word. A converter of our own may make them fast."""
    try:
        vectorized = vectorize(function, inputs=inputs, buckets=(3,))
    except LoopedOpError as error:
        assert op in error.ops  # noqa: PT017 - either outcome is right
    else:
        assert vectorized.certificate.loops_batched == 0


def test_looped_op_inside_a_loop_of_the_users_is_found() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0.0)
        while total < 10.0:
            nearest = tf.raw_ops.NearestNeighbors(points=x[:1, None], centers=x[:, None], k=1)[1]
            total += 1.0 + tf.reshape(nearest, [])
        return total

    assert line_of(predict, "NearestNeighbors") in refuse(predict, LoopedOpError)


# Tracing.


def test_users_exception_is_the_cause_and_in_the_message() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        raise ValueError("weights are missing")

    with pytest.raises(
        TraceError, match=r"predict could not be traced for one example(?s:.*)weights are missing"
    ) as caught:
        vectorize(predict, inputs=X, buckets=(1,))
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "function",
    [
        lambda y: y,
        lambda: 0.0 + 1,
        lambda x: x @ x,
        lambda x: tf.Variable(x + 0.0),
        lambda x: open("/nonexistent/weights"),  # noqa: SIM115, PTH123
        lambda x: object(),
    ],
)
def test_function_that_cannot_be_traced_is_refused(function: Callable[..., Any]) -> None:
    assert "could not be traced for one example" in refuse(function, TraceError)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda x: None, "'output' is a NoneType"),
        (lambda x: (x, None), "'output_1' is a NoneType"),
        (lambda x: {}, "returns nothing"),
        (lambda x: {"a": {"b": x}}, "'a' is a dict"),
        (lambda x: {"a": (x, x)}, "'a' is a tuple"),
        (lambda x: [[x]], "'output_0' is a list"),
        (lambda x: tf.RaggedTensor.from_row_lengths(x, [1, 2]), "RaggedTensor"),
        (lambda x: tf.sparse.from_dense(x + 0.0), "SparseTensor"),
    ],
)
def test_output_that_is_no_dense_tensor_is_refused_in_one_sentence(returned: Callable[..., Any], message: str) -> None:
    said = refuse(returned, DeclarationError)
    assert message in said
    assert "in user code" not in said


# Conversion, probes, parity.


def test_failing_conversion_names_the_op_and_keeps_the_cause() -> None:
    function = tf.function(lambda x: tf.raw_ops.NearestNeighbors(points=x[None], centers=x[None], k=1)[1])
    with pytest.raises(VectorizerError, match="NearestNeighbors"):
        vectorize(function, inputs=X, buckets=(2,))


def test_function_that_answers_no_probe_is_refused_and_an_example_helps() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.constant([1.0, 2.0]), tf.cast(tf.where(x[0] == 0.123, 0, 77), tf.int32)) + x

    message = refuse(predict, ProbeError)
    assert "raised on every probe" in message
    assert "77" in message
    vectorized = vectorize(predict, inputs=X, buckets=(2,), examples=[{"x": [0.123, 1.0, 2.0]}])
    assert vectorized.certificate.n_probes_refused > 30
    assert vectorized.certificate.parity[0].n_examples == 1


def test_bucket_that_fails_says_why_in_one_line() -> None:
    """switch_case with an index past the last branch: the function takes the last, stock pfor raises."""
    inputs = {"x": spec(3), "i": spec(dtype=tf.int32)}

    def predict(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return tf.switch_case(i, [lambda: x, lambda: x * 2.0])

    try:
        vectorized = vectorize(predict, inputs=inputs, buckets=(2,))
    except (ParityError, ConversionError) as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert vectorized(x=np.ones((3, 3)), i=[0, 1, 9])[2].tolist() == [2.0, 2.0, 2.0]

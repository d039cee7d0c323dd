"""What can't be served by the batch is refused by name, with the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tests.vectorizer.oracle import check, spec
from vectorizer import (
    ConversionError,
    DeclarationError,
    Length,
    LoopedOpError,
    OpClass,
    ParityError,
    ProbeError,
    SideEffectError,
    TraceError,
    VectorizerError,
    probes,
    vectorize,
)
from vectorizer.effects import judgement

X = {"x": spec(3)}
THIS_FILE = Path(__file__).name


def refuse(function: Callable[..., Any], error: type[VectorizerError], *, inputs: Any = None, **options: Any) -> str:
    with pytest.raises(error) as caught:
        vectorize(function, inputs=X if inputs is None else inputs, buckets=options.pop("buckets", (2,)), **options)
    assert type(caught.value) is error
    return str(caught.value)


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


# Effects.


WEIGHT = tf.Variable(1.0)
GENERATOR = tf.random.Generator.from_seed(1)
TRUNCATED = {"shape": [3], "means": 0.0, "stdevs": 1.0, "minvals": -1.0, "maxvals": 1.0}


def prints(x: tf.Tensor) -> tf.Tensor:
    tf.print(x)
    return x


def assigns(x: tf.Tensor) -> tf.Tensor:
    WEIGHT.assign_add(1.0)
    return x * WEIGHT


def assigns_in_branch(x: tf.Tensor) -> tf.Tensor:
    if x[0] > 0:
        WEIGHT.assign_add(1.0)
    return -x


def prints_in_loop(x: tf.Tensor) -> tf.Tensor:
    while tf.reduce_sum(x) < 9.0:
        x += 1.0
        tf.print(x)
    return x


def draws_from_a_generator(x: tf.Tensor) -> tf.Tensor:
    return x + GENERATOR.normal([3])


def writes_a_file(x: tf.Tensor) -> tf.Tensor:
    tf.io.write_file("/nonexistent/file", tf.as_string(x[0]))
    return x


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (prints, "PrintV2"),
        (assigns_in_branch, "AssignAddVariableOp"),
        (prints_in_loop, "PrintV2"),
        (draws_from_a_generator, "RngReadAndSkip"),
        (writes_a_file, "WriteFile"),
        (assigns, "AssignAddVariableOp"),
        (lambda x: tf.numpy_function(lambda v: v, [x], tf.float32), "PyFunc"),
        (lambda x: tf.py_function(lambda v: v, [x], tf.float32), "EagerPyFunc"),
        (lambda x: x + tf.cast(tf.timestamp(), tf.float32), "Timestamp"),
        (lambda x: x + tf.raw_ops.ParameterizedTruncatedNormal(**TRUNCATED), "ParameterizedTruncatedNormal"),
    ],
)
def test_effect_is_refused_by_name_instead_of_being_lost(function: Callable[..., Any], op: str) -> None:
    message = refuse(function, SideEffectError)
    assert f"{op} ({THIS_FILE}:" in message


def test_effect_leaves_the_variable_alone() -> None:
    before = float(WEIGHT)
    refuse(assigns, SideEffectError)
    assert float(WEIGHT) == before


def test_random_op_is_refused_by_name_if_the_user_asks_for_it() -> None:
    with pytest.raises(SideEffectError, match=rf"RandomUniform \({THIS_FILE}:.*stateless.*seed that is an input"):
        vectorize(lambda x: tf.nn.dropout(x, 0.5), inputs=X, buckets=(1,), random="refuse")


#: What a function may do of all that TensorFlow registers as stateful. Everything else is refused by name.
LET_THROUGH = {
    "calls, that are judged by what they call": {"Case", "If", "StatefulPartitionedCall", "While"},
    "reads": {
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "StatelessRandomGetAlg",
        "VarHandleOp",
        "VariableShape",
    },
    "checks, that judge every row": {"Assert", "CheckNumerics", "CheckNumericsV2"},
    "random, drawn from a seed": {
        "Multinomial",
        "RandomGamma",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    },
}


def test_every_stateful_op_of_tensorflow_is_judged() -> None:
    names = [name for name in dir(tf.raw_ops) if not name.startswith("_")]
    definitions = {name: op_def_registry.get(name) for name in names}
    stateful = {name for name, definition in definitions.items() if definition is not None and definition.is_stateful}
    assert len(stateful) > 400
    assert {name for name in stateful if judgement(name) != "refused"} == set().union(*LET_THROUGH.values())
    kinds = {judgement(name) for group in LET_THROUGH.values() for name in group}
    assert kinds == {"harmless", "check", "random"}


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


# Declarations.


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "has no inputs"),
        ([spec(3)], "inputs: expected a dict"),
        ({"x": (3,)}, "input 'x': expected a tf.TensorSpec.*got tuple"),
        ({"x": tf.TensorSpec(None)}, "number of dimensions is unknown"),
        ({"x": spec(3, dtype=tf.resource)}, "resource can't be sent"),
        ({"x": spec(3, dtype=tf.variant)}, "variant can't be sent"),
        ({"x": spec(3, dtype=tf.qint8)}, "qint8 can't be sent"),
        ({"x-y": spec(3)}, "input 'x-y': its name must be a Python identifier"),
        ({"class": spec(3)}, "input 'class'"),
        ({"self": spec(3)}, "input 'self'"),
        ({5: spec(3)}, "input 5"),
        ({"x": spec(None)}, "declare its largest size"),
        ({"x": spec(None, None)}, "2 variable dimensions"),
    ],
)
def test_wrong_inputs_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        vectorize(lambda **inputs: next(iter(inputs.values())), inputs=inputs, buckets=(1,))


@pytest.mark.parametrize(
    "options",
    [
        {"buckets": ()},
        {"buckets": "large"},
        {"buckets": 4},
        {"buckets": (0, 1)},
        {"buckets": (1.5,)},
        {"buckets": (True,)},
        {"buckets": ("4",)},
        {"buckets": (1,), "allow_looped": "Where"},
        {"buckets": (1,), "examples": [5]},
        {"buckets": (1,), "examples": [{}]},
        {"buckets": (1,), "examples": [{"x": [1, 2, 3], "z": 1}]},
        {"buckets": (1,), "examples": [{"x": [1, 2]}]},
        {"buckets": (1,), "examples": [{"x": ["a", "b", "c"]}]},
        {"buckets": (1,), "lengths": {"y": Length(max=3)}},
        {"buckets": (1,), "lengths": {"x": Length(max=3)}},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=r"buckets|allow_looped|example 0|lengths|variable dimension"):
        vectorize(lambda x: x, inputs=X, **options)


N = spec(dtype=tf.int32)


@pytest.mark.parametrize(
    ("inputs", "lengths", "message"),
    [
        ({"x": spec(None)}, {"x": Length(max=0)}, "at least 1"),
        ({"x": spec(None)}, {"x": Length(max=5, buckets=())}, "end with the largest size 5"),
        ({"x": spec(None)}, {"x": Length(max=5, buckets=(3,))}, "end with the largest size 5"),
        ({"x": spec(None)}, {"x": Length(max=5, buckets=(0, 5))}, "must be positive"),
        ({"x": spec(None)}, {"x": Length(max=5, length_input="n")}, "'n' must be an int32 or int64 scalar"),
        ({"x": spec(None), "n": spec()}, {"x": Length(max=5, length_input="n")}, "int32 or int64 scalar"),
        ({"x": spec(None), "n": spec(1, dtype=tf.int32)}, {"x": Length(max=5, length_input="n")}, "scalar"),
        ({"x": spec(None)}, {"x": Length(max=5, length_input="x")}, "scalar input"),
        (
            {"x": spec(None), "y": spec(None), "n": N},
            {"x": Length(max=5, length_input="n"), "y": Length(max=6, length_input="n")},
            "declare different sizes",
        ),
        (
            {"x": spec(None), "y": spec(None), "y_length": N},
            {"x": Length(max=5, length_input="y_length"), "y": Length(max=5)},
            "both have a length called 'y_length'",
        ),
    ],
)
def test_wrong_lengths_are_refused(inputs: dict[str, tf.TensorSpec], lengths: dict[str, Length], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        vectorize(lambda **inputs: inputs["x"], inputs=inputs, lengths=lengths, buckets=(1,))


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ({"x": np.zeros(6)}, "expected one size of at most 5"),
        ({"x": np.zeros(3), "y": np.zeros(2)}, r"have sizes \[2, 3\]"),
    ],
)
def test_examples_with_wrong_lengths_are_refused(example: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        vectorize(
            lambda x, y, n: x + y,
            inputs={"x": spec(None), "y": spec(None), "n": N},
            lengths={name: Length(max=5, buckets=(5,), length_input="n") for name in "xy"},
            buckets=(1,),
            examples=[{"y": example["x"], **example}],
        )


def test_function_that_does_not_end_on_an_example_is_refused_with_the_example(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def long_below_zero(x: tf.Tensor) -> tf.Tensor:
        steps = 0
        while x < 0.0:
            steps += 1
        return x + tf.cast(steps, tf.float32)

    monkeypatch.setattr(probes, "_PATIENCE_S", 1.0)
    with pytest.raises(ProbeError, match=r"does not end within 1 s on the example \{'x': '-1"):
        vectorize(long_below_zero, inputs={"x": tf.TensorSpec([])}, buckets=(2,), examples=[{"x": 3.0}])

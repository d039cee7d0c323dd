"""Inputs, options, lengths and examples that make no sense, each refused with a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from tests.vectorizer.refusing import X
from vectorizer import (
    DeclarationError,
    Length,
    ProbeError,
    probes,
    vectorize,
)


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

from __future__ import annotations

import base64
import json
import math
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf

from server.build.declaration import declaration_of_function
from server.build.errors import SourceRefused
from server.build.examples import typed_examples
from server.spec import ModelSpec

INPUTS = {
    "text": tf.TensorSpec([], tf.string),
    "words": tf.TensorSpec([None], tf.string),
    "x": tf.TensorSpec([2], tf.float32),
    "n": tf.TensorSpec([], tf.int32),
    "flag": tf.TensorSpec([], tf.bool),
    "half": tf.TensorSpec([1], tf.bfloat16),
}


def typed(**example):
    (answer,) = typed_examples([example], INPUTS)
    return answer


def test_bytes_come_as_b64_and_text_as_utf8():
    answer = typed(text={"b64": base64.b64encode(b"\x00\xff").decode()}, words=["hören", {"b64": ""}])

    assert answer["text"].shape == ()
    assert answer["text"].item() == b"\x00\xff"
    assert answer["words"].dtype == object
    assert answer["words"].tolist() == ["hören".encode(), b""]


def test_not_a_number_and_infinity_come_through_json():
    (example,) = json.loads('[{"x": [NaN, -Infinity]}]')

    x = typed(**example)["x"]

    assert x.dtype == np.float32
    assert math.isnan(x[0])
    assert x[1] == -math.inf


def test_arrays_of_the_inputs_own_type_stay_as_they_are():
    half = np.array([1.5], tf.bfloat16.as_numpy_dtype)
    answer = typed(half=half, text=np.array(b"ab", object), n=np.int64(7), x=np.array([1.0, 2.0]))

    assert answer["half"].dtype == half.dtype
    assert answer["half"] == half
    assert answer["text"].item() == b"ab"
    assert answer["n"].dtype == np.int32
    assert answer["x"].tolist() == [1.0, 2.0]


def test_a_whole_number_stands_for_a_float():
    assert typed(x=[1, 2], half=[3])["half"].astype(float).tolist() == [3.0]


def test_what_is_no_input_is_left_for_the_vectorizer_to_name():
    assert typed(unknown={"b64": "x"}) == {"unknown": {"b64": "x"}}


@pytest.mark.parametrize(
    "example",
    [
        {"text": 7},
        {"text": {"b64": "?"}},
        {"text": {"b64": 1}},
        {"text": {"b64": "", "more": 1}},
        {"words": [None]},
        {"x": {"b64": "AAAA"}},
        {"x": ["1", "2"]},
        {"x": [[1.0], [2.0, 3.0]]},
        {"n": 1.5},
        {"n": 2**31},
        {"n": True},
        {"flag": 1},
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused_by_input_and_example(example):
    (name,) = example

    with pytest.raises(SourceRefused, match=f"input '{name}' of example 1: expected {INPUTS[name].dtype.name}"):
        typed_examples([{}, example], INPUTS)


def test_a_declaration_has_the_specs_examples_before_the_modules_own():
    class Module:
        INPUTS: ClassVar = {"text": tf.TensorSpec([], tf.string)}

        @staticmethod
        def examples():
            yield {"text": b"the module's"}

    spec = ModelSpec(examples=[{"text": {"b64": base64.b64encode(b"the spec's").decode()}}])
    declaration = declaration_of_function(lambda text: text, Module, spec)

    assert [np.asarray(each["text"]).item() for each in declaration.examples] == [b"the spec's", b"the module's"]

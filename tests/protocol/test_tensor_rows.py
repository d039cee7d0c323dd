"""Tensors with a dimension of examples: what is a request, and with which sentence others are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from server.protocol import (
    EmptyRequest,
    ProtocolError,
    RaggedOutput,
    Rows,
    TooManyInstances,
    WrongDtype,
    WrongKeys,
    WrongShape,
)
from server.protocol.tensor_rows import batch_shape, read_tensors, selected_outputs, stacked
from server.signature import LengthAxis, ModelSignature, TensorSignature

WORDS = {"float32": "FP32", "float64": "FP64", "int32": "INT32", "int64": "INT64", "string": "BYTES", "bool": "BOOL"}

PAIR = ModelSignature(
    inputs=(
        TensorSignature(name="a", dtype="float32", shape=(2,)),
        TensorSignature(name="seed", dtype="int64", shape=(), is_optional=True),
    ),
    outputs=(
        TensorSignature(name="y", dtype="float32", shape=()),
        TensorSignature(name="z", dtype="string", shape=("k",)),
    ),
)
SEQUENCE = ModelSignature(
    inputs=(
        TensorSignature(name="t", dtype="float32", shape=("n", 2)),
        TensorSignature(name="m", dtype="bool", shape=("n",)),
    ),
    outputs=(TensorSignature(name="y", dtype="float32", shape=("n",)),),
    axes=(LengthAxis(name="n", max=5, buckets=(5,)),),
)


def read(tensors: Mapping[str, Any], signature: ModelSignature = PAIR) -> Rows:
    arrays = {name: np.asarray(value) for name, value in tensors.items()}
    rows, is_bare = read_tensors(arrays, signature, max_instances=4, words=WORDS)
    assert not is_bare
    return rows


def test_the_first_dimension_counts_examples() -> None:
    rows = read({"a": np.float32([[1, 2], [3, 4], [5, 6]]), "seed": np.int64([7, 8, 9])})
    assert rows.n == 3
    assert rows.lengths is None
    assert [np.asarray(column).tolist() for column in rows.columns] == [[[1, 2], [3, 4], [5, 6]], [7, 8, 9]]


def test_one_example_may_come_without_the_dimension_of_examples_where_the_format_lets_it() -> None:
    bare = {"t": np.zeros((3, 2), np.float32), "m": np.ones(3, bool)}
    rows, is_bare = read_tensors(bare, SEQUENCE, max_instances=4, words=WORDS, takes_bare=True)
    assert is_bare
    assert (rows.n, rows.lengths) == (1, [(3,)])
    with pytest.raises(WrongShape, match="first dimension counts examples"):
        read(bare, SEQUENCE)
    mixed = {**bare, "m": np.ones((1, 3), bool)}
    with pytest.raises(WrongShape, match="input 't'"):
        read_tensors(mixed, SEQUENCE, max_instances=4, words=WORDS, takes_bare=True)


def test_an_optional_input_is_drawn_for_each_example() -> None:
    seeds = np.asarray(read({"a": np.zeros((4, 2), np.float32)}).columns[1])
    assert seeds.dtype == np.int64
    assert len(set(seeds.tolist())) == 4


def test_examples_of_one_tensor_have_one_length() -> None:
    rows = read({"t": np.zeros((2, 3, 2), np.float32), "m": np.ones((2, 3), bool)}, SEQUENCE)
    assert rows.lengths == [(3,), (3,)]
    assert [[row.shape for row in column] for column in rows.columns] == [[(3, 2), (3, 2)], [(3,), (3,)]]
    assert read({"t": np.zeros((1, 0, 2), np.float32), "m": np.ones((1, 0), bool)}, SEQUENCE).lengths == [(0,)]


@pytest.mark.parametrize(
    ("tensors", "error", "says"),
    [
        ({}, WrongKeys, "input 'a' is missing; it has 'a', 'seed'"),
        ({"a": np.zeros((1, 2), np.float32), "b": [1]}, WrongKeys, "'b' is no input"),
        ({"b": [1], "c": [1]}, WrongKeys, "'a' is missing; 'b', 'c' is no input"),
        ({"a": np.zeros((1, 2), np.float64)}, WrongDtype, "input 'a': expected FP32, got FP64"),
        ({"a": np.array([[b"x", b"y"]], object)}, WrongDtype, "expected FP32, got BYTES"),
        ({"a": np.zeros(2, np.float32)}, WrongShape, r"expected FP32\[n, 2\], got \[2\]; the first dimension counts"),
        ({"a": np.zeros((1, 3), np.float32)}, WrongShape, r"expected FP32\[n, 2\], got \[1, 3\]"),
        (
            {"a": np.zeros((2, 2), np.float32), "seed": np.int64([1])},
            WrongShape,
            "'seed' has 1 examples, input 'a' has 2",
        ),
        ({"a": np.zeros((0, 2), np.float32)}, EmptyRequest, "at least one example"),
        ({"a": np.zeros((5, 2), np.float32)}, TooManyInstances, "max_instances"),
    ],
)
def test_what_is_no_request_is_said(tensors: Mapping[str, Any], error: type[ProtocolError], says: str) -> None:
    with pytest.raises(error, match=says):
        read(tensors)


@pytest.mark.parametrize(
    ("t", "m", "says"),
    [
        ((1, 6, 2), (1, 6), r"expected FP32\[n, <=5, 2\], got \[1, 6, 2\].*shorten it to 5"),
        ((1, 3, 3), (1, 3), r"got \[1, 3, 3\]"),
        ((1, 3, 2), (1, 4), "input 'm': its length is 4, but input 't' has 3"),
    ],
)
def test_lengths_are_checked(t: tuple[int, ...], m: tuple[int, ...], says: str) -> None:
    with pytest.raises(WrongShape, match=says):
        read({"t": np.zeros(t, np.float32), "m": np.ones(m, bool)}, SEQUENCE)


def test_outputs_are_chosen_by_name_in_the_order_that_is_asked() -> None:
    assert selected_outputs([], PAIR, words=WORDS) == (0, 1)
    assert selected_outputs(["z", "y"], PAIR, words=WORDS) == (1, 0)
    with pytest.raises(WrongKeys, match="'x' is no output of this model; it has 'y', 'z'"):
        selected_outputs(["x"], PAIR, words=WORDS)
    with pytest.raises(WrongKeys, match="twice"):
        selected_outputs(["y", "y"], PAIR, words=WORDS)


def test_a_dtype_that_the_protocol_has_no_name_for_is_said() -> None:
    odd = TensorSignature(name="c", dtype="complex64", shape=())
    with pytest.raises(WrongDtype, match="'c' is complex64, which this protocol has no name for"):
        read({"c": np.zeros(1, np.complex64)}, ModelSignature(inputs=(odd,), outputs=()))
    with pytest.raises(WrongDtype, match="'c' is complex64"):
        selected_outputs([], ModelSignature(inputs=(), outputs=(odd,)), words=WORDS)


def test_rows_of_one_shape_are_one_tensor() -> None:
    z = PAIR.outputs[1]
    words = [np.array([b"a", b"b"], object), np.array([b"c", b"d"], object)]
    assert stacked(words, z).tolist() == [[b"a", b"b"], [b"c", b"d"]]
    assert stacked([np.array(b"a", object)], z).shape == (1,)
    with pytest.raises(RaggedOutput, match=r"output 'z': its rows differ in shape \(\[1\] and \[2\]\).*':predict'"):
        stacked([words[0], words[1][:1]], z)


def test_any_number_of_examples_is_said_as_minus_one() -> None:
    assert [batch_shape(tensor) for tensor in SEQUENCE.inputs] == [[-1, -1, 2], [-1, -1]]

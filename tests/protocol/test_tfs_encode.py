"""What outputs look like on the wire."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from server.protocol import Column, encode_predict
from server.signature import ModelSignature, TensorSignature


def encode(outputs: dict[str, Column], *, row_form: bool = True) -> bytes:
    """Encode named outputs; dtype and shape of the signature don't matter to the encoder."""
    tensors = tuple(TensorSignature(name=name, dtype="float32", shape=()) for name in outputs)
    return encode_predict(list(outputs.values()), ModelSignature(inputs=(), outputs=tensors), row_form=row_form)


def array(values: Any, dtype: Any = np.float32) -> Any:
    return np.array(values, dtype)


def test_the_name_of_a_single_output_is_left_out() -> None:
    assert encode({"y": array([[1, 2], [3, 4]])}) == b'{"predictions":[[1.0,2.0],[3.0,4.0]]}'
    assert encode({"y": array([[1, 2]])}, row_form=False) == b'{"outputs":[[1.0,2.0]]}'


def test_several_outputs_are_objects_by_row_and_columns_by_name() -> None:
    outputs: dict[str, Column] = {"y": array([0.1, 0.2]), "k": array([[1], [2]], np.int64)}
    assert encode(outputs) == b'{"predictions":[{"y":0.1,"k":[1]},{"y":0.2,"k":[2]}]}'
    assert encode(outputs, row_form=False) == b'{"outputs":{"y":[0.1,0.2],"k":[[1],[2]]}}'


def test_float32_prints_the_shortest_decimal_of_float32() -> None:
    body = encode({"y": array([0.1, 1 / 3, 3.4028235e38, 1e-45, 16777216.0, -0.0])})
    assert body == b'{"predictions":[0.1,0.33333334,3.4028235e+38,1e-45,16777216.0,-0.0]}'


def test_half_precision_prints_the_shortest_decimal_that_reads_back() -> None:
    assert encode({"y": array([0.1, 1 / 3, 65504, 6e-8, -0.0], np.float16)}) == (
        b'{"predictions":[0.1,0.3333,65500.0,6e-8,-0.0]}'
    )
    assert encode({"y": array([0.1, 1 / 3, 3.0], ml_dtypes.bfloat16)}) == b'{"predictions":[0.1,0.334,3.0]}'


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_half_precision_value_reads_back(dtype: Any) -> None:
    values = np.arange(65_536, dtype=np.uint16).view(dtype)
    values = values[np.isfinite(values.astype(np.float32))]
    printed = json.loads(encode({"y": values}))["predictions"]
    assert np.array(printed).astype(dtype).tobytes() == values.tobytes()


def test_values_that_are_not_finite_are_tokens() -> None:
    for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
        body = encode({"y": array([[np.nan, np.inf], [-np.inf, 0.5]], dtype)})
        assert body == b'{"predictions":[[NaN,Infinity],[-Infinity,0.5]]}'
    outputs: dict[str, Column] = {"y": array([np.nan, 0.1]), "z": array([[[1.5]], [[np.inf]]]), "e": array([[], []])}
    assert encode(outputs) == (b'{"predictions":[{"y":NaN,"z":[[1.5]],"e":[]},{"y":0.1,"z":[[Infinity]],"e":[]}]}')
    assert encode(outputs, row_form=False) == (b'{"outputs":{"y":[NaN,0.1],"z":[[[1.5]],[[Infinity]]],"e":[[],[]]}}')


def test_values_beside_a_token_keep_their_shortest_form() -> None:
    assert encode({"y": array([[0.1, np.nan, 1 / 3]])}) == b'{"predictions":[[0.1,NaN,0.33333334]]}'


def test_strings_are_text_unless_their_name_or_their_bytes_forbid_it() -> None:
    values = np.array(["é".encode(), b"null"], object)
    assert encode({"y": values}) == '{"predictions":["é","null"]}'.encode()
    assert encode({"y_bytes": values[1:]}) == b'{"predictions":[{"b64":"bnVsbA=="}]}'
    assert encode({"y": np.array([[b"\xff"]], object)}) == b'{"predictions":[[{"b64":"/w=="}]]}'
    assert encode({"y": np.array(["a"]), "z": array([np.nan])}) == b'{"predictions":[{"y":"a","z":NaN}]}'


def test_integers_and_booleans_print_exactly() -> None:
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        info = np.iinfo(dtype)
        assert encode({"y": array([info.min, info.max], dtype)}) == b'{"predictions":[%d,%d]}' % (info.min, info.max)
    assert encode({"y": array([True, False], bool)}) == b'{"predictions":[true,false]}'


def test_slices_and_transposes_and_foreign_byte_order_print_like_copies() -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (whole[1:3], whole[:, 1], whole.T, whole[::-1], whole[:, ::2], whole.astype(">f4")):
        for outputs in ({"y": view}, {"y": view, "z": view.astype(np.int64)[:, ...]}):
            copied = {
                name: np.array(value, value.dtype.newbyteorder("="), order="C") for name, value in outputs.items()
            }
            for row_form in (True, False):
                assert encode(dict(outputs), row_form=row_form) == encode(dict(copied), row_form=row_form)


def test_rows_of_unlike_length_print_at_their_own() -> None:
    rows = [array([1, 2]), array([]), array([np.nan]), array([[5, 6], [7, 8]])[:, 0]]
    assert encode({"y": rows}) == b'{"predictions":[[1.0,2.0],[],[NaN],[5.0,7.0]]}'
    assert encode({"y": rows[:2], "n": array([2, 0], np.int32)}) == (
        b'{"predictions":[{"y":[1.0,2.0],"n":2},{"y":[],"n":0}]}'
    )
    halves: Column = [array([0.1], np.float16), array([], np.float16)]
    assert encode({"y": halves}, row_form=False) == b'{"outputs":[[0.1],[]]}'


def test_zero_sized_outputs_print() -> None:
    assert encode({"y": np.zeros((2, 0), np.float32)}) == b'{"predictions":[[],[]]}'
    assert encode({"y": np.zeros((1, 2, 0), np.float16)}) == b'{"predictions":[[[],[]]]}'

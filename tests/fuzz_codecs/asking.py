"""Bodies for a model: who is asked, what they may hold, and whether what was read is what the signature says."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from server.protocol import Array, Column, Rows
from server.protocol.dtypes import numpy_dtype
from tests.fuzz_codecs.mutation import mutated
from tests.fuzz_codecs.target import Target
from tests.protocol.asked import EVERY_DTYPE, Someone, values_of
from tests.protocol.oip_models import model, tensor

__all__ = ["ASKED", "MAX_INSTANCES", "Asking", "arrays_of", "check_rows", "columns_as_json", "plain", "same"]

MAX_INSTANCES = 50


def _someone(inputs: Sequence[tuple[str, str, tuple[int | str, ...]]]) -> Someone:
    tensors = tuple(tensor(name, dtype, *shape) for name, dtype, shape in inputs)
    # Outputs are the inputs again, so that what was read can be written.
    return Someone(model(*tensors, outputs=tensors).signature)


#: Who is asked: the first byte of an input says whom.
ASKED = (
    _someone([("x", "float32", (3,))]),
    _someone([("x", "float64", ())]),
    _someone([("x", "int64", (2, 4))]),
    _someone([("x", "int8", ("n",))]),
    _someone([("x", "string", ("n",)), ("y", "float32", ("n", 2))]),
    _someone([("x", "float16", (2,)), ("y", "bool", ()), ("z", "uint64", (1, 2))]),
    _someone([("x", "bfloat16", (2, 0)), ("y", "string", ())]),
    # Their JSON is told by its brackets.
    _someone([("x", "float32", (2, 3, 1))]),
    _someone([("x", "float32", ("n", 2))]),
    *[_someone([("x", dtype, (2,))]) for dtype in EVERY_DTYPE],
)


def arrays_of(asked: Someone) -> list[dict[str, tuple[str, Array]]]:
    """Examples of whoever is asked, two and one."""
    made = []
    for n in (2, 1):
        arrays: dict[str, tuple[str, Array]] = {}
        for one in asked.signature.inputs:
            shape = (n, *(3 if isinstance(dim, str) else dim for dim in one.shape))
            values = values_of(one.dtype).reshape(-1)
            arrays[one.name] = (
                one.dtype,
                np.resize(values, shape) if 0 not in shape else np.empty(shape, values.dtype),
            )
        made.append(arrays)
    return made


def plain(array: Array) -> Any:
    if array.dtype == object:
        return json.loads(json.dumps(array.tolist(), default=lambda value: value.decode("latin-1")))
    return array.astype(np.float64).tolist() if array.dtype.kind not in "biu" else array.tolist()


def check_rows(rows: Rows, asked: Someone) -> None:
    """The rows are what the signature says."""
    assert 0 < rows.n <= MAX_INSTANCES
    assert len(rows.columns) == len(asked.signature.inputs)
    for column, one in zip(rows.columns, asked.signature.inputs, strict=True):
        wanted = numpy_dtype(one.dtype)
        arrays = column if isinstance(column, list) else list(column) if one.shape else [column]
        assert len(column) == rows.n
        for array in arrays:
            assert np.asarray(array).dtype == wanted
            if isinstance(column, list):
                sizes = zip(one.shape, array.shape, strict=True)
                assert all(size == dim if isinstance(dim, int) else size <= 8 for dim, size in sizes)
        if not isinstance(column, list):
            assert column.shape == (rows.n, *one.shape)
    assert (rows.lengths is None) is (not asked.signature.axes)
    assert rows.n_bytes < 2**21


def same(one: Sequence[Column], other: Sequence[Column]) -> bool:
    return all(_same_column(*pair) for pair in zip(one, other, strict=True))


def _same_column(one: Column, other: Column) -> bool:
    if isinstance(one, list) or isinstance(other, list):
        return len(one) == len(other) and all(map(_same_column, one, other))
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()


class Asking(Target):
    """Inputs whose first byte says who is asked."""

    def bodies(self, asked: Someone) -> list[bytes]:
        """Valid bodies."""
        raise NotImplementedError

    def corpus(self) -> Sequence[bytes]:
        return [bytes((place,)) + body for place, asked in enumerate(ASKED) for body in self.bodies(asked)]

    def draw(self, random_: random.Random, corpus: Sequence[bytes]) -> bytes:
        data = mutated(random_, corpus)
        # What was written for one is seldom for another.
        return data or b"\0"

    def read(self, data: bytes) -> str:
        return self.read_body(ASKED[data[0] % len(ASKED)], data[1:])

    def read_body(self, asked: Someone, body: bytes) -> str:
        """Read a body."""
        raise NotImplementedError


def columns_as_json(arrays: dict[str, tuple[str, Array]]) -> dict[str, Any]:
    return {name: plain(array) for name, (_, array) in arrays.items()}

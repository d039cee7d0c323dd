"""Models whose graphs are NumPy, and the oracle that computes one row at a time.

A graph computes over all that is in the arrays, padding included, so that what does not belong there shows: lengths of
an earlier batch, values beyond a row's own length, memory that the next batch overwrites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from server.engine.answers import Answers
from server.engine.model import GroupRunner
from server.engine.staging import Staging
from server.protocol import Rows
from server.signature import LengthAxis, ModelSignature, TensorSignature

__all__ = ["FIXED", "VARIABLE", "expected_row", "make_rows", "runner"]

Arrays = list[np.ndarray[Any, Any]]

FIXED = ModelSignature(
    inputs=(
        TensorSignature(name="x", dtype="float32", shape=(3,)),
        TensorSignature(name="k", dtype="int32", shape=()),
    ),
    outputs=(
        TensorSignature(name="y", dtype="float32", shape=(3,)),
        TensorSignature(name="same", dtype="float32", shape=(3,)),
        TensorSignature(name="k", dtype="int32", shape=()),
    ),
)
VARIABLE = ModelSignature(
    inputs=(
        TensorSignature(name="tokens", dtype="string", shape=("n",)),
        TensorSignature(name="v", dtype="float32", shape=("n", 2)),
    ),
    outputs=(
        TensorSignature(name="total", dtype="float32", shape=()),
        TensorSignature(name="joined", dtype="string", shape=()),
        TensorSignature(name="back", dtype="float32", shape=("n", 2)),
        TensorSignature(name="counted", dtype="int32", shape=("m",)),
    ),
    axes=(LengthAxis(name="n", max=9, buckets=(2, 4, 9), length_input="n_true"),),
)
_POISON = -1
_POISON_TOKEN = b"poison"


def make_rows(signature: ModelSignature, number: int, n_rows: int, poison: Sequence[int]) -> Rows:
    """Return a request's rows: no two rows of all requests are alike."""
    rng = np.random.default_rng(number)
    if signature is FIXED:
        x = rng.integers(-1_000, 1_000, (n_rows, 3)).astype(np.float32)
        k = (number * 1_000 + np.arange(n_rows)).astype(np.int32)
        k[list(poison)] = _POISON
        return Rows(n=n_rows, columns=(x, k))
    lengths = rng.integers(0, 10, n_rows)
    lengths[list(poison)] = np.maximum(lengths[list(poison)], 1)
    tokens = [
        np.array([b"%d.%d.%d\0" % (number, row, place) for place in range(length)], dtype=object)
        for row, length in enumerate(lengths)
    ]
    for row in poison:
        tokens[row][0] = _POISON_TOKEN
    v = [rng.integers(1, 100, (length, 2)).astype(np.float32) for length in lengths]
    return Rows(n=n_rows, columns=(tokens, v), lengths=[(int(length),) for length in lengths])


def expected_row(signature: ModelSignature, rows: Rows, row: int) -> list[np.ndarray[Any, Any]]:
    """Return the right answer to one row: what the model's function gives for it alone."""
    if signature is FIXED:
        x, k = rows.columns[0][row], rows.columns[1][row]
        return [x * np.float32(2) + np.float32(k % 100), x, np.asarray(k)]
    tokens, v = rows.columns[0][row], rows.columns[1][row]
    counted = np.arange(len(tokens) * 2 // 3, dtype=np.int32)
    return [np.asarray(v.sum()), np.array(b"|".join(tokens), dtype=object), v, counted]


def runner(
    signature: ModelSignature,
    lengths: tuple[int, ...],
    costs_s: Mapping[int, float],
    refuse: Callable[[str], Exception],
) -> GroupRunner:
    """Return the engine's own runner over NumPy graphs. ``refuse`` makes TensorFlow's error for a bad value."""
    graph = _fixed if signature is FIXED else _variable
    return GroupRunner(
        Staging(signature, lengths, list(costs_s)),
        {bucket: lambda *arrays, bucket=bucket: graph(bucket, refuse, *arrays) for bucket in costs_s},
        costs_s,
        Answers(signature),
    )


def _fixed(bucket: int, refuse: Callable[[str], Exception], *arrays: Any) -> Arrays:
    x, k = arrays
    assert len(x) == len(k) == bucket
    bad = np.flatnonzero(k == _POISON)
    if len(bad):
        raise refuse(f"row {bad[0]} is refused")
    # ``x`` goes through as it is: the memory of the staging array itself.
    return [x * np.float32(2) + (k % 100).astype(np.float32)[:, None], x, k]


def _variable(bucket: int, refuse: Callable[[str], Exception], *arrays: Any) -> Arrays:
    tokens, v, n_true = arrays
    assert len(tokens) == len(v) == len(n_true) == bucket
    if any(_POISON_TOKEN in row for row in tokens):
        raise refuse("a token is refused")
    joined = np.array([b"|".join(row[:n]) for row, n in zip(tokens, n_true, strict=True)], dtype=object)
    sizes = (n_true * 2 // 3).astype(np.int32)
    counted = np.tile(np.arange(tokens.shape[1], dtype=np.int32), (bucket, 1))
    # What is joined should be all there is: beyond a row's length there is nothing.
    left = [b"".join(row[n:]) for row, n in zip(tokens, n_true, strict=True)]
    assert not any(left), left
    return [v.sum((1, 2), dtype=np.float32), joined, v, counted, sizes]

"""Slices that take all there is, found by computing them.

``tf.strings.split`` of one string makes a ragged tensor of one row and takes that row: some forty ops count the tokens,
sum the counts and slice the tokens from the first to the last. Batched, each of them is many, and together they take
longer than what is done with the tokens. With one string all of them depend on nothing but the number of its tokens,
so that they can be run for several numbers, and the slice be left out if it changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor.graphs import copied_op

__all__ = ["whole_slices"]

_SPLITS = frozenset({"StringSplit", "StringSplitV2"})
#: Sums, comparisons and rearrangements of a few integers: what is right for some numbers of tokens is so for all.
_ARITHMETIC = frozenset(
    (
        *("Add", "AddV2", "Bincount", "Cast", "ConcatV2", "Const", "Cumsum", "DenseBincount", "ExpandDims", "GatherV2"),
        *(
            "Greater",
            "GreaterEqual",
            "Identity",
            "Less",
            "LessEqual",
            "Max",
            "Maximum",
            "Min",
            "Minimum",
            "Mul",
            "Pack",
        ),
        *("Range", "Reshape", "Shape", "Size", "Squeeze", "StridedSlice", "Sub", "Sum"),
    )
)
_N_TOKENS = (0, 1, 2, 3, 8, 61)


def whole_slices(graph: Any) -> Iterator[tuple[Any, Any]]:
    """Yield slices of one string's tokens that take all of them: what is sliced, and what the slice is."""
    for op in graph.get_operations():
        if op.type == "StridedSlice" and _is_of_tokens(op.inputs[0]) and op.inputs[1].op.type != "Const":
            split = op.inputs[0].op
            arithmetic = _arithmetic(op, split)
            if arithmetic is not None and _takes_all(op, split, arithmetic):
                yield op.inputs[0], op.outputs[0]


def _is_of_tokens(tensor: Any) -> bool:
    split = tensor.op
    return split.type in _SPLITS and tensor.value_index == 1 and split.inputs[0].shape == [1]


def _arithmetic(op: Any, split: Any) -> list[Any] | None:
    """Return the ops from the split to ``op``, in an order in which they can be made; None if there are others."""
    found: dict[Any, None] = {}

    def is_known(current: Any) -> bool:
        if current is split or current in found:
            return True
        if current.type not in _ARITHMETIC or current.control_inputs:
            return False
        if not all(is_known(tensor.op) for tensor in current.inputs):
            return False
        found[current] = None
        return True

    return list(found) if is_known(op) else None


def _takes_all(op: Any, split: Any, arithmetic: list[Any]) -> bool:
    scratch = tf.Graph()
    with scratch.as_default():
        given = [tf.compat.v1.placeholder(output.dtype, output.shape) for output in split.outputs]
        made: dict[str, Any] = {before.name: after for before, after in zip(split.outputs, given, strict=True)}
        for current in arithmetic:
            again = copied_op(current, [made[tensor.name] for tensor in current.inputs])
            made.update({before.name: after for before, after in zip(current.outputs, again.outputs, strict=True)})
    with tf.compat.v1.Session(graph=scratch) as session:
        for n in _N_TOKENS:
            tokens = np.array([b"%d" % number for number in range(n)], object)
            places = np.stack([np.zeros(n, np.int64), np.arange(n)], 1)
            sizes = np.array([1, n])
            feed = dict(zip(given, (places, tokens, sizes), strict=True))
            if not np.array_equal(session.run(made[op.outputs[0].name], feed), tokens):
                return False
    return True

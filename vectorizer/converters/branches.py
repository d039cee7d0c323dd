"""``if`` and ``switch`` of one example -> every branch that some row takes, then each row its own result.

pfor cuts the rows of each branch out of the batch and stitches the results together: shapes become dynamic, and
XLA refuses. Here a branch runs on the whole batch:

1. A branch that is cheap and can't fail just runs.
2. Another one runs only if some row takes it. If it can fail, the rows that don't take it borrow the inputs of one
   that does.
3. Each row gets the result of its branch.

A predicate that is the same for all rows stays a real branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import (
    Converter,
    called_graph,
    convert_body,
    graph_by_name,
    rows_of,
    scratch_graph,
    stacked,
    stock_registry,
    wrap,
)
from vectorizer.converters.raising import can_raise
from vectorizer.converters.rows import borrowed, rows_where

__all__ = ["CONVERTERS"]

#: A branch of more ops than this is worth the 10 us that a real branch costs.
_CHEAP_OPS = 24
#: And so is one with any of these.
_COSTLY = frozenset(
    [
        "BatchMatMul",
        "BatchMatMulV2",
        "BatchMatMulV3",
        "Cholesky",
        "Conv2D",
        "Conv3D",
        "DepthwiseConv2dNative",
        "Einsum",
        "FFT",
        "IFFT",
        "IRFFT",
        "MatMul",
        "MatrixInverse",
        "MatrixSolve",
        "MatrixTriangularSolve",
        "RFFT",
        "StatelessWhile",
        "Svd",
        "While",
    ]
)


def _if(pfor_input: Any) -> Any:
    op = pfor_input.op
    branches = [called_graph(op, "else_branch"), called_graph(op, "then_branch")]
    predicate = pfor_input.input(0)
    taken = predicate.t if predicate.t.dtype == tf.bool else tf.not_equal(predicate.t, 0)
    choice = wrap(tf.cast(taken, tf.int32), stacked=predicate.is_stacked)
    return _choose(pfor_input, choice, branches) or stock_registry()["If"](pfor_input)


def _case(pfor_input: Any) -> Any:
    op = pfor_input.op
    branches = [graph_by_name(op, branch.name) for branch in op.get_attr("branches")]
    index = pfor_input.input(0)
    last = len(branches) - 1
    # Out of range means the last one, the default.
    is_valid = tf.logical_and(index.t >= 0, index.t <= last)
    choice = wrap(tf.where(is_valid, index.t, last), stacked=index.is_stacked)
    return _choose(pfor_input, choice, branches) or stock_registry()["Case"](pfor_input)


def _choose(pfor_input: Any, choice: Any, branches: Sequence[Any]) -> list[Any] | None:
    """Convert a choice between branches; None if their results can't be chosen between row by row."""
    inputs = pfor_input.inputs[1:]
    if not all(_is_choosable(output) for branch in branches for output in branch.outputs):
        return None
    if choice.is_stacked:
        return _chosen_by_row(pfor_input, choice.t, branches, inputs)
    are_stacked = [False] * len(pfor_input.outputs)
    for branch in branches:
        made, _ = _tried(pfor_input, branch, inputs)
        are_stacked = [was or value for was, value in zip(are_stacked, made, strict=True)]

    def run(branch: Any) -> list[tf.Tensor]:
        return [
            stacked(value, pfor_input) if wanted else value.t
            for value, wanted in zip(convert_body(pfor_input, branch, inputs), are_stacked, strict=True)
        ]

    outputs = tf.switch_case(choice.t, [lambda branch=branch: run(branch) for branch in branches])
    return [
        wrap(output, stacked=wanted) for output, wanted in zip(_listed(outputs, are_stacked), are_stacked, strict=True)
    ]


def _chosen_by_row(pfor_input: Any, choice: tf.Tensor, branches: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    results: list[tf.Tensor] | None = None
    for number, branch in enumerate(branches):
        takes = tf.equal(choice, number)
        made = _run_branch(pfor_input, branch, inputs, takes)
        results = (
            made if results is None else [rows_where(takes, new, old) for new, old in zip(made, results, strict=True)]
        )
    assert results is not None, "a choice has branches"
    return [wrap(result, stacked=True) for result in results]


def _run_branch(pfor_input: Any, branch: Any, inputs: Sequence[Any], takes: tf.Tensor) -> list[tf.Tensor]:
    """Run one branch for the rows that take it; the results of others mean nothing."""
    _, conversions = _tried(pfor_input, branch, inputs)
    may_fail = can_raise(conversions)

    def run() -> list[tf.Tensor]:
        given = inputs
        if may_fail:
            lender = borrowed(takes)
            given = [wrap(tf.gather(value.t, lender), stacked=True) if value.is_stacked else value for value in inputs]
        return [stacked(value, pfor_input) for value in convert_body(pfor_input, branch, given)]

    is_cheap = len(conversions) <= _CHEAP_OPS and not any(entry.op.type in _COSTLY for entry in conversions)
    if is_cheap and not may_fail:
        return run()
    rows = rows_of(pfor_input)

    def skip() -> list[tf.Tensor]:
        return [tf.zeros([rows, *output.shape.as_list()], output.dtype) for output in branch.outputs]

    return _listed(tf.cond(tf.reduce_any(takes), run, skip), branch.outputs)


def _tried(pfor_input: Any, branch: Any, inputs: Sequence[Any]) -> tuple[list[bool], list[Any]]:
    """Convert a branch for a look: which of its outputs are stacked, and what was converted."""
    conversions: list[Any] = []
    with scratch_graph(conversions) as graph:
        inside = [wrap(graph.capture(value.t), stacked=value.is_stacked) for value in inputs]
        made = [value.is_stacked for value in convert_body(pfor_input, branch, inside)]
    return made, conversions


def _is_choosable(output: Any) -> bool:
    return output.dtype not in (tf.variant, tf.resource) and output.shape.is_fully_defined()


def _listed(outputs: Any, like: Sequence[Any]) -> list[tf.Tensor]:
    """Undo that TensorFlow gives a single output bare."""
    return [outputs] if len(like) == 1 and isinstance(outputs, tf.Tensor) else list(outputs)


CONVERTERS: dict[str, Converter] = {"Case": _case, "If": _if, "StatelessCase": _case, "StatelessIf": _if}

"""What the vectorizer does with one op: a function that is nothing but this op is converted, and its loops counted.

The registries don't tell. A converter may have no batched form for the operands at hand, and some of pfor's own are
loops; so each op is converted with operands that differ from row to row, as ``vectorize`` does it, and what stands in
the graph is what counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.op_page.call import Call, Each
from vectorizer._pfor import convert_rows, stock_registry
from vectorizer.batched_graph import batched_graph as batched
from vectorizer.conversions import CALLING_OPS, ConversionLog
from vectorizer.converters import converters
from vectorizer.converters.differing import differing_converters
from vectorizer.differing import lengths_beside
from vectorizer.effects import RANDOM_OPS, refuse_effects
from vectorizer.errors import ConversionError, SideEffectError
from vectorizer.loops import LOOP_OPS, count_loops
from vectorizer.seeds import seeded
from vectorizer.trace import trace_example
from vectorizer.vectorized import Bucket

__all__ = ["N_ROWS", "Finding", "OpClass", "batched_graph", "classify", "example_graph", "has_converter", "patterns"]

N_ROWS = 3
_OURS = converters()


class OpClass(StrEnum):
    """What becomes of an op."""

    BY_PFOR = "vectorized by pfor"
    BY_US = "vectorized by us"
    LOOPED = "looped, if allowed"
    REFUSED = "refused"
    EFFECT = "refused: effect"


@dataclass(frozen=True)
class Finding:
    """The class of one call, and why it is no better one."""

    kind: OpClass
    reason: str = ""


@dataclass(frozen=True)
class Body:
    """A traced function of one example, as ``convert_rows`` takes it."""

    graph: Any
    #: The operands that are inputs, in the order of ``graph.inputs``.
    stacked: tuple[np.ndarray, ...]
    captured_inputs: tuple[Any, ...] = ()


def has_converter(op: str) -> bool:
    """Return True if somebody wrote a converter for the op."""
    return op in _OURS or op in stock_registry()


def patterns(call: Call) -> Iterator[tuple[str, Collection[int]]]:
    """Yield which operands differ from row to row: all that are meant to; then each alone, or each parameter too.

    A pattern is named by the operand that it is about; the first has no name.
    """
    leaves = call.leaves()
    usual = {index for index, (_, value) in enumerate(leaves) if isinstance(value, Each)}
    yield "", usual
    for index, (name, value) in enumerate(leaves):
        if index not in usual:
            yield name, {*usual, index}
        elif len(usual) > 1 and not value.goes_along:
            yield f"{name} alone", {index}


def example_graph(call: Call, stacked: Collection[int]) -> Body:
    """Trace the call for one example: operands that differ from row to row are inputs, the others constants."""
    graph = tf.__internal__.FuncGraph("example")
    inputs, values = [], []
    with graph.as_default():
        operands = []
        for index, (_, value) in enumerate(call.leaves()):
            array = value.values if isinstance(value, Each) else value
            dtype = value.dtype if isinstance(value, Each) else None
            if index in stacked:
                operand = tf.compat.v1.placeholder(dtype or array.dtype, array.shape)
                inputs.append(operand)
                values.append(array)
            else:
                operand = tf.constant(array, dtype)
            operands.append(operand)
        graph.outputs = call.outputs(operands)
    graph.inputs = [*inputs, *graph.internal_captures]
    return Body(graph, tuple(values), tuple(graph.external_captures))


def batched_graph(body: Body, log: ConversionLog, *, loops: bool, without: Collection[str] = ()) -> Any:
    """Convert the body for ``N_ROWS`` rows, as ``vectorize`` does. Without ``loops``, the first one ends it.

    For ops in ``without`` pfor's own converters are taken instead of ours.
    """
    known = {op: converter for op, converter in _OURS.items() if op not in without}
    graph = tf.__internal__.FuncGraph("batched")
    with graph.as_default():
        given = body.graph.inputs[: len(body.stacked)]
        arguments = [tf.compat.v1.placeholder(one.dtype, [N_ROWS, *one.shape]) for one in given]
        outputs = convert_rows(
            body,
            arguments,
            rows=N_ROWS,
            converters=known,
            for_differing=differing_converters(),
            log=log,
            loops=loops,
        )
        named = lengths_beside([str(index) for index in range(len(outputs))], outputs)
        graph.outputs = [tf.identity(output) for output in named.values()]
    graph.inputs = [*arguments, *graph.internal_captures]
    return graph


def classify(call: Call, stacked: Collection[int], *, without: Collection[str] = ()) -> Finding:
    """Return what the vectorizer does with the op of a call whose ``stacked`` operands differ from row to row.

    ``without`` are ops whose converters of ours are left out.
    """
    if call.op in RANDOM_OPS:
        return _classify_seeded(call, stacked)
    body = example_graph(call, stacked)
    try:
        refuse_effects(body.graph, call.op)
    except SideEffectError as error:
        return Finding(OpClass.EFFECT, str(error).partition("): ")[2])
    log = ConversionLog()
    try:
        # Loops are not built: it takes most of the time.
        graph = batched_graph(body, log, loops=False, without=without)
    except Exception as error:  # noqa: BLE001 - whatever a converter raises is a refusal
        looped = [(entry.op.type, entry.looped_because) for entry in log.conversions if entry.looped_because]
        if not looped or any(output.dtype == tf.variant for entry in log.conversions for output in entry.op.outputs):
            return Finding(OpClass.REFUSED, str(error).partition("\n")[0])
        ((op, reason),) = looped
        return Finding(OpClass.LOOPED, str(reason) if op == call.op else f"with it, {op} is looped")
    hidden = {op.type: reason for op, reason in log.looped().values()}
    if hidden:
        return Finding(OpClass.LOOPED, hidden.get(call.op, f"with it, {', '.join(sorted(hidden))} is looped"))
    may_loop = LOOP_OPS | CALLING_OPS
    if any(op.type in may_loop for op in graph.get_operations()) and (
        count_loops(graph.as_graph_def()) > count_loops(body.graph.as_graph_def())
    ):
        return Finding(OpClass.LOOPED, "there is a loop in it")
    return Finding(OpClass.BY_US if call.op in _OURS else OpClass.BY_PFOR)


def _classify_seeded(call: Call, stacked: Collection[int]) -> Finding:
    """Classify an op that draws numbers as ``vectorize`` does it: from a seed that is one more input."""
    leaves = dict(enumerate(call.leaves()))
    arrays = {index: one.values if isinstance(one, Each) else one for index, (_, one) in leaves.items()}
    specs = {f"operand_{index}": tf.TensorSpec(arrays[index].shape, arrays[index].dtype) for index in stacked}

    def draw(**given: tf.Tensor) -> Any:
        operands = [given.get(f"operand_{index}", tf.constant(array)) for index, array in arrays.items()]
        return tuple(call.outputs(operands))

    # A function has an input, if only one that it does not look at.
    function = seeded(trace_example(draw, specs or {"unused": tf.TensorSpec([])}))
    try:
        _, log = batched(function, Bucket(rows=N_ROWS, lengths=()), _OURS)
    except ConversionError as error:
        return Finding(OpClass.REFUSED, str(error).partition("\n")[0])
    looped = sorted({f"{op.type} is looped" for op, _ in log.looped().values()})
    if looped:
        return Finding(OpClass.LOOPED, ", ".join(looped))
    return Finding(OpClass.BY_US, "each row draws from a seed of its own request")

"""Running pfor's converters over a traced graph.

Theory of operation. pfor (arXiv 1903.04243) walks the ops of a loop body and asks a registry for a converter of
each op whose inputs differ from row to row (*stacked*); ops whose inputs are the same for all rows
(*invariant*) are copied once. ``tf.vectorized_map`` is its public face, but it re-traces the function at every
call, hides which ops it could only loop, and leaves a dead copy of the body in the graph. Here:

1. The body is a graph that was traced before (``trace.py``). Its ops are converted straight into the graph that
   is being built; calls to other functions are inlined on the way.
2. For as long as one conversion lasts, the registry and the conversion of function calls are replaced by ours
   (``_substituted``) and put back after it: no other user of pfor in the process sees a difference.
3. Our registry answers every op type. It records each op that was converted, and an op without a usable
   converter runs in a loop over the rows only so that all such ops can be named together; the caller refuses the
   result unless each of them was allowed.
4. A converter that hides a loop is found afterwards: every loop op in the new graph is attributed to the
   innermost conversion that made it.

Pinned: TensorFlow 2.21. ``tests/vectorizer/test_pfor_pin.py`` names what is relied on here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import kernels as _kernels
from tensorflow.python.framework import op_def_registry as _op_def_registry
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import handle_data_util as _handle_data
from tensorflow.python.ops.parallel_for import pfor as _stock

from vectorizer._pfor.graphs import (
    called_graph,
    called_graphs,
    captured,
    function_graph,
    known_called_graphs,
    known_function,
)
from vectorizer._pfor.registry import (
    ConversionAborted,
    Converter,
    Registry,
    current_registry,
    same_op,
    stock_registry,
    wrap_differing,
)
from vectorizer._pfor.values import differing, list_content, n_rows, wrap, wrap_list
from vectorizer._pfor.whole_slices import whole_slices
from vectorizer.checks import checks_in
from vectorizer.conversions import Conversion, ConversionLog
from vectorizer.differing import Differing

__all__ = [
    "at_rows",
    "convert_body",
    "convert_rows",
    "converted",
    "copied_call",
    "has_cpu_kernel",
    "nothing_but_checks",
    "op_definition",
    "scratch_graph",
    "variant_placeholder",
]

#: The registry is a module global of TensorFlow, so that one conversion runs at a time.
_lock = threading.RLock()


def _inline_call(
    func: Any,
    converter: Any,
    inputs: Sequence[Any],
    n_outputs: int | None = None,
    known: Sequence[tuple[Any, Any]] = (),
) -> list[Any]:
    """Convert a function's body in place: pfor's own version loses the outputs of restored functions.

    Differentiating a function adds outputs to its graph that earlier calls of it do not have: ``n_outputs`` says how
    many the call at hand has. Its checks judge all rows before anything that it made is used.
    """
    graph = function_graph(func)
    if len(inputs) != len(graph.inputs):
        raise ValueError(f"function {graph.name} takes {len(graph.inputs)} inputs, got {len(inputs)}")
    for inner, outer in (*zip(graph.inputs, inputs, strict=True), *known):
        converter._add_conversion(inner, outer)
    first = _ops.get_default_graph().num_operations()
    if _bodies:
        _convert_variants(graph, converter)
    _leave_out(graph, converter)
    for check in checks_in(graph.get_operations(), called_graphs):
        converter._convert_helper(check.outputs[0] if check.outputs else check)
    made = [converter._convert_helper(output) for output in graph.outputs[:n_outputs]]
    return [_after(value, _checks_since(first)) for value in made]


def _leave_out(graph: Any, converter: Any) -> None:
    """Take for the result of a slice that changes nothing what it is a slice of: its ends are then never converted."""
    for before, after in whole_slices(graph):
        converter._add_conversion(after, converter._convert_helper(before))


def _checks_since(first: int) -> list[Any]:
    return checks_in(_ops.get_default_graph().get_operations()[first:], known_called_graphs)


def _after(value: Any, checks: Sequence[Any]) -> Any:
    """Return a wrapped tensor that is not there before the checks have judged."""
    content = list_content(value)
    if not checks or (content is None and value.t.dtype in (tf.resource, tf.variant)):
        return value
    with tf.control_dependencies(checks):
        found = differing(value)
        if found is not None:
            return wrap_differing(replace(found, dense=tf.identity(found.dense)))
        if content is not None:
            dense = getattr(content, "dense", None)
            return value if dense is None else wrap_list(replace(content, dense=tf.identity(dense)))
        return _stock.wrap(tf.identity(value.t), value.is_stacked)


def nothing_but_checks(first: int) -> Any:
    """Return what stands for the result of an op without outputs: the checks since op number ``first``."""
    return tf.group(*_checks_since(first))


def _convert_call(pfor_input: Any) -> Any:
    first = _ops.get_default_graph().num_operations()
    op = pfor_input.op
    made = _convert_inside(pfor_input, called_graph(op, "f"), pfor_input.inputs, n_outputs=len(op.outputs))
    return made or nothing_but_checks(first)


#: Ops that make a variant. pfor copies those that all rows share.
_VARIANT_SOURCES = ("EmptyTensorList", "OptionalFromValue", "OptionalNone")


#: How many bodies of loops and branches are being converted in each other.
_bodies: list[None] = []


def _convert_variants(graph: Any, converter: Any) -> None:
    """Convert ops that make a variant, shared or not: unlike the outer graph, a body keeps copies nobody uses.

    XLA compiles what is in a body, used or not, and knows no optional values and no lists without a bound.
    """
    for op in graph.get_operations():
        if op.type in _VARIANT_SOURCES:
            given = [converter._convert_helper(tensor) for tensor in op.inputs]
            made = _stock._pfor_converter_registry.get(op.type)(_stock._PforInput(converter, op, given))
            converter._add_conversion(op.outputs[0], made)


def convert_body(
    pfor_input: Any, graph: Any, inputs: Sequence[Any], *, known: Sequence[tuple[Any, Any]] = ()
) -> list[Any]:
    """Convert the body of a loop or branch, in place: ``inputs`` and results are wrapped tensors, all rows each.

    ``known`` are tensors of the body that need no conversion, each with the wrapped tensor that stands for it.
    """
    _bodies.append(None)
    try:
        return _convert_inside(pfor_input, graph, inputs, known=known)
    finally:
        _bodies.pop()


def _convert_inside(
    pfor_input: Any,
    graph: Any,
    inputs: Sequence[Any],
    *,
    n_outputs: int | None = None,
    known: Sequence[tuple[Any, Any]] = (),
) -> list[Any]:
    outer = pfor_input.pfor
    inner = _stock.PFor(
        loop_var=outer.loop_var,
        loop_len=n_rows(outer),
        pfor_ops=graph.get_operations(),
        fallback_to_while_loop=outer.fallback_to_while_loop,
        all_indices=outer.all_indices,
        all_indices_partitioned=outer.all_indices_partitioned,
        pfor_config=outer.pfor_config,
    )
    return _inline_call(graph, inner, inputs, n_outputs, known)


def converted(pfor_input: Any, tensor: Any) -> Any:
    """Return what stands for a tensor of the function whose op is being converted, wrapped."""
    return pfor_input.pfor._convert_helper(tensor)


def at_rows(pfor_input: Any, rows: int) -> Any:
    """Return what converters take for the op of ``pfor_input`` in a batch of another size: its inputs are not cut."""
    outer = pfor_input.pfor
    smaller = _stock.PFor(
        loop_var=outer.loop_var,
        loop_len=tf.constant(rows),
        pfor_ops=[],
        fallback_to_while_loop=outer.fallback_to_while_loop,
        pfor_config=outer.pfor_config,
    )
    return _stock._PforInput(smaller, pfor_input.op, pfor_input.inputs)


@contextmanager
def scratch_graph(conversions: list[Conversion]) -> Iterator[Any]:
    """Convert into a graph that is thrown away, to see how; what was converted is put into ``conversions``.

    Tensors of the surrounding graph come in through ``graph.capture``.
    """
    graph = _func_graph.FuncGraph("scratch")
    with graph.as_default(), current_registry().logging_to(ConversionLog()) as log:
        yield graph
    conversions[:] = log.conversions


def copied_call(pfor_input: Any) -> list[Any]:
    """Convert an op that calls functions, and differs in nothing from row to row: it runs as it is, once for all."""
    op = pfor_input.op
    graph = _ops.get_default_graph()
    for attribute in op.node_def.attr.values():
        function = known_function(op.graph, attribute.func.name) if attribute.func.name else None
        if function is not None:
            graph._add_function_recursive(function)
    made = same_op(pfor_input, [value.t for value in pfor_input.inputs])
    for tensor, like in zip(made, op.outputs, strict=True):
        _handle_data.copy_handle_data(like, tensor)
    return [wrap(tensor, stacked=False) for tensor in made]


@contextmanager
def _substituted(registry: Mapping[str, Converter]) -> Iterator[None]:
    with _lock:
        converters, call = _stock._pfor_converter_registry, _stock._convert_function_call
        _stock._pfor_converter_registry = registry
        _stock._convert_function_call = _inline_call
        try:
            yield
        finally:
            _stock._pfor_converter_registry = converters
            _stock._convert_function_call = call


def convert_rows(
    concrete: Any,
    arguments: Sequence[tf.Tensor],
    *,
    rows: int,
    converters: Mapping[str, Converter],
    for_differing: Mapping[str, Converter] | None = None,
    log: ConversionLog,
    loops: bool = True,
) -> list[Any]:
    """Run the traced function of one example on ``rows`` stacked examples, in the graph that is being built.

    ``for_differing`` are the converters, by op type, of ops that are given a value of differing length.
    With ``loops`` False the first op that would run once for each row ends the conversion; the log names it.

    Shapes: each argument ``[rows, *s]`` for the function's ``[*s]``, in the function's order; so the results, except
        that one whose size depends on the example is a ``Differing``.
    Errors: what a converter raised, with its op as ``error.op``; NotImplementedError at a loop.
    """
    graph = concrete.graph
    scratch = tf.Graph()
    with scratch.as_default():
        # pfor wants to know its loop variable; a body that was traced without one does not use it.
        loop_var = tf.compat.v1.placeholder_with_default(0, shape=[])
    registry = Registry(
        {**stock_registry(), "PartitionedCall": _convert_call, "StatefulPartitionedCall": _convert_call, **converters},
        for_differing or {},
        log,
        loops=loops,
    )
    n_arguments = len(arguments)
    captures = concrete.captured_inputs
    if len(graph.inputs) != n_arguments + len(captures):
        raise ValueError(f"{graph.name} takes {len(graph.inputs)} inputs, got {n_arguments} and {len(captures)}")
    with _substituted(registry):
        converter = _stock.PFor(
            loop_var, tf.constant(rows), pfor_ops=graph.get_operations(), fallback_to_while_loop=True
        )
        for inner, argument in zip(graph.inputs[:n_arguments], arguments, strict=True):
            converter._add_conversion(inner, _stock.wrap(argument, True))
        for inner, capture in zip(graph.inputs[n_arguments:], captures, strict=True):
            converter._add_conversion(inner, _stock.wrap(captured(inner, capture), False))
        first = _ops.get_default_graph().num_operations()
        try:
            _leave_out(graph, converter)
            for check in checks_in(graph.get_operations(), called_graphs):
                converter._convert_helper(check.outputs[0] if check.outputs else check)
            made = [
                differing(converter._convert_helper(output)) or converter.convert(output) for output in graph.outputs
            ]
            with tf.control_dependencies(_checks_since(first)):
                return [
                    replace(output, dense=tf.identity(output.dense))
                    if isinstance(output, Differing)
                    else tf.identity(output)
                    for output in made
                ]
        except ConversionAborted as aborted:
            aborted.error.op = aborted.op  # type: ignore[attr-defined]
            raise aborted.error from aborted.error.__cause__


def variant_placeholder(like: tf.Tensor) -> tf.Tensor:
    """Return a placeholder of a variant that holds what another does: the shapes of its elements are known by it."""
    made = tf.compat.v1.placeholder(tf.variant, [])
    _handle_data.copy_handle_data(like, made)
    return made


def op_definition(op_type: str) -> Any:
    """Return what TensorFlow says of an op's operands, results and attributes: its OpDef."""
    return _op_def_registry.get(op_type)


def has_cpu_kernel(op_type: str) -> bool:
    """Return True if TensorFlow can run the op on a CPU."""
    kernels = _kernels.get_registered_kernels_for_op(op_type).kernel
    return any(kernel.device_type in ("CPU", "DEFAULT") for kernel in kernels)

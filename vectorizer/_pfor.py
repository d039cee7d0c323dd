"""The one door to TensorFlow's private modules: running pfor's converters over a traced graph.

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
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow.core.framework.graph_debug_info_pb2 import GraphDebugInfo as DebugInfoProto
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as SavedModelProto
from tensorflow.python.eager import cancellation as _cancellation
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import function_def_to_graph as _function_def_to_graph
from tensorflow.python.framework import kernels as _kernels
from tensorflow.python.framework import op_def_registry as _op_def_registry
from tensorflow.python.framework import ops as _ops
from tensorflow.python.framework import tensor as _tensor
from tensorflow.python.framework import tensor_util as _tensor_util
from tensorflow.python.ops import control_flow_util_v2 as _control_flow
from tensorflow.python.ops import handle_data_util as _handle_data
from tensorflow.python.ops.parallel_for import pfor as _stock

from vectorizer.checks import checks_in
from vectorizer.conversions import CALLED_BY, CALLING_OPS, Conversion, ConversionLog
from vectorizer.differing import Differing, resized
from vectorizer.row_loop import loop_rows

__all__ = [
    "Converter",
    "DebugInfoProto",
    "FuncGraph",
    "NotForThese",
    "SavedModelProto",
    "at_rows",
    "called_graph",
    "called_graphs",
    "cancellable",
    "captured",
    "constant_of",
    "convert_body",
    "convert_rows",
    "converted_with",
    "copied_call",
    "copied_op",
    "copy_op",
    "differing",
    "function_graph",
    "gradient_function",
    "graph_by_name",
    "graph_for_branch",
    "has_cpu_kernel",
    "is_stateful",
    "keep_from_xla",
    "known_function",
    "list_content",
    "not_for_these",
    "nothing_but_checks",
    "op_definition",
    "rows_of",
    "same_op",
    "scratch_graph",
    "stacked",
    "stock_registry",
    "variant_placeholder",
    "wrap",
    "wrap_differing",
    "wrap_list",
]

FuncGraph = _func_graph.FuncGraph
#: ``(op)`` -> the function that computes an op's gradient. Errors: LookupError.
gradient_function = _ops.get_gradient_function
#: ``(op, input_shapes, name)`` -> a new graph of a function that a loop or branch names.
graph_for_branch = _control_flow.get_func_graph

#: A converter: takes pfor's input object, returns wrapped tensors, one for each output of the op.
Converter = Callable[[Any], Any]

#: What a converter raises for operands that it has no batched form for.
NotForThese = _stock.ConversionNotImplementedError

_DIFFERS = (
    "it has no batched form for a value whose length differs from example to example; cut or pad it to a fixed size "
    "before, or reduce it"
)

#: Ops that a list of ours may go into; the others would take its placeholder for the list.
_LIST_OPS = CALLING_OPS | {
    "AddN",
    "Identity",
    "OptionalFromValue",
    "OptionalGetValue",
    "TensorListConcatV2",
    "TensorListElementShape",
    "TensorListGather",
    "TensorListGetItem",
    "TensorListLength",
    "TensorListPopBack",
    "TensorListPushBack",
    "TensorListResize",
    "TensorListScatterIntoExistingList",
    "TensorListSetItem",
    "TensorListStack",
    "ZerosLike",
}

#: The registry is a module global of TensorFlow, so that one conversion runs at a time.
_lock = threading.RLock()


class _ConversionAborted(BaseException):
    """Carries a converter's error past pfor's own handler, which logs at length and can hide the cause.

    pfor's handler formats the traceback of the op, which a restored graph does not have, and dies on it.
    """

    def __init__(self, op: Any, error: Exception) -> None:
        super().__init__(str(error))
        self.op = op
        self.error = error


class _Registry(dict[str, Converter]):
    """Converters by op type that record what they convert and answer every op type."""

    def __init__(
        self,
        converters: Mapping[str, Converter],
        for_differing: Mapping[str, Converter],
        log: ConversionLog,
        *,
        loops: bool,
    ) -> None:
        super().__init__(converters)
        self._for_differing = for_differing
        self._log = log
        self._loops = loops

    @contextmanager
    def logging_to(self, log: ConversionLog) -> Iterator[ConversionLog]:
        """Record into another log for a while."""
        outer, self._log = self._log, log
        try:
            yield log
        finally:
            self._log = outer

    def keep_from_xla(self) -> None:
        """Note that sizes in the graph are known only when it runs."""
        self._log.is_for_xla = False

    def makes_differing(self, op_type: str) -> bool:
        """Return True if the results of an op may differ in length."""
        return op_type in self._for_differing

    def get(self, op_type: str, default: Any = None) -> Converter:
        def recorded(pfor_input: Any) -> Any:
            differs = op_type not in CALLING_OPS and any(differing(given) for given in pfor_input.inputs)
            converter = self._for_differing.get(op_type) if differs else dict.get(self, op_type)
            graph = _ops.get_default_graph()
            stacked = tuple(given.is_stacked for given in pfor_input.inputs)
            entry = Conversion(op=pfor_input.op, graph=graph, stacked=stacked, first=graph.num_operations(), last=0)
            self._log.conversions.append(entry)
            try:
                if pfor_input.op.type not in _LIST_OPS and any(map(list_content, pfor_input.inputs)):
                    raise NotImplementedError(f"{pfor_input.op.type} has no batched form for a TensorArray")
                if converter is None:
                    return _loop_over_rows(
                        pfor_input, entry, _DIFFERS if differs else "it has no converter", builds=self._loops
                    )
                try:
                    return converter(pfor_input)
                except _stock.ConversionNotImplementedError as error:
                    reason = f"its converter does not take these operands: {error}"
                    return _loop_over_rows(pfor_input, entry, reason, builds=self._loops)
            except _ConversionAborted:
                raise
            except Exception as error:
                raise _ConversionAborted(pfor_input.op, error) from error
            finally:
                entry.last = graph.num_operations()

        return recorded


def _loop_over_rows(pfor_input: Any, entry: Conversion, reason: str, *, builds: bool) -> Any:
    entry.looped_because = reason
    op = pfor_input.op
    if any(t.dtype == tf.variant for t in (*op.outputs, *op.inputs)):
        raise NotImplementedError(f"{op.type} gives or takes a variant, which rows can't be stacked of, and {reason}")
    if not builds:
        raise NotImplementedError(f"{op.type} would run once for each row: {reason}")
    registry = _registry()
    may_differ = registry.makes_differing(op.type) and all(output.shape.rank is not None for output in op.outputs)
    if not may_differ and not any(differing(given) for given in pfor_input.inputs):
        return _stock._fallback_converter(pfor_input, root_cause=reason)
    # TensorFlow's own loop stacks what each step gives, which must then have one shape.
    registry.keep_from_xla()
    made = loop_rows(
        lambda *inputs: same_op(pfor_input, inputs),
        [(differing(value) or value.t, value.is_stacked) for value in pfor_input.inputs],
        [(output.shape, output.dtype) for output in op.outputs],
        rows=rows_of(pfor_input),
    )
    return [
        wrap_differing(value, output.shape) if isinstance(value, Differing) else wrap(value, stacked=True)
        for value, output in zip(made, op.outputs, strict=True)
    ]


def _registry() -> _Registry:
    """Return the registry of the conversion that is under way."""
    registry = _stock._pfor_converter_registry
    assert isinstance(registry, _Registry), "it belongs to a conversion"
    return registry


def _inline_call(func: Any, converter: Any, inputs: Sequence[Any], n_outputs: int | None = None) -> list[Any]:
    """Convert a function's body in place: pfor's own version loses the outputs of restored functions.

    Differentiating a function adds outputs to its graph that earlier calls of it do not have: ``n_outputs`` says how
    many the call at hand has. Its checks judge all rows before anything that it made is used.
    """
    graph = function_graph(func)
    if len(inputs) != len(graph.inputs):
        raise ValueError(f"function {graph.name} takes {len(graph.inputs)} inputs, got {len(inputs)}")
    for inner, outer in zip(graph.inputs, inputs, strict=True):
        converter._add_conversion(inner, outer)
    first = _ops.get_default_graph().num_operations()
    if _bodies:
        _convert_variants(graph, converter)
    for check in checks_in(graph.get_operations(), called_graphs):
        converter._convert_helper(check.outputs[0] if check.outputs else check)
    made = [converter._convert_helper(output) for output in graph.outputs[:n_outputs]]
    return [_after(value, _checks_since(first)) for value in made]


def _checks_since(first: int) -> list[Any]:
    return checks_in(_ops.get_default_graph().get_operations()[first:], _known_called_graphs)


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


def convert_body(pfor_input: Any, graph: Any, inputs: Sequence[Any]) -> list[Any]:
    """Convert the body of a loop or branch, in place: ``inputs`` and results are wrapped tensors, all rows each."""
    _bodies.append(None)
    try:
        return _convert_inside(pfor_input, graph, inputs)
    finally:
        _bodies.pop()


def _convert_inside(pfor_input: Any, graph: Any, inputs: Sequence[Any], *, n_outputs: int | None = None) -> list[Any]:
    outer = pfor_input.pfor
    inner = _stock.PFor(
        loop_var=outer.loop_var,
        loop_len=_n_rows(outer),
        pfor_ops=graph.get_operations(),
        fallback_to_while_loop=outer.fallback_to_while_loop,
        all_indices=outer.all_indices,
        all_indices_partitioned=outer.all_indices_partitioned,
        pfor_config=outer.pfor_config,
    )
    return _inline_call(graph, inner, inputs, n_outputs)


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


def _n_rows(pfor: Any) -> Any:
    """Return the number of rows, as a constant of the current graph where it is known: captured, it would be lost."""
    known = _tensor_util.constant_value(pfor.loop_len_vector)
    return pfor.loop_len_vector[0] if known is None else tf.constant(known[0])


def rows_of(pfor_input: Any) -> int:
    """Return the number of rows. Buckets are static; only where pfor itself cuts rows out of the batch it is unknown.

    Errors: ConversionNotImplementedError there.
    """
    known = _tensor_util.constant_value(pfor_input.pfor.loop_len_vector)
    if known is None:
        not_for_these("it is inside a loop or branch whose state has no fixed shape, where the number of rows varies")
    return int(known[0])


@contextmanager
def scratch_graph(conversions: list[Conversion]) -> Iterator[Any]:
    """Convert into a graph that is thrown away, to see how; what was converted is put into ``conversions``.

    Tensors of the surrounding graph come in through ``graph.capture``.
    """
    graph = _func_graph.FuncGraph("scratch")
    with graph.as_default(), _registry().logging_to(ConversionLog()) as log:
        yield graph
    conversions[:] = log.conversions


def cancellable(concrete: Any) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Return a ConcreteFunction as a call, and what cancels it from another thread."""
    manager = _cancellation.CancellationManager()

    def cancel() -> None:
        manager.start_cancel()
        # An op that works on regardless never leaves its context, and later calls would be cancelled with it.
        _cancellation._active_context = None

    return manager.get_cancelable_function(concrete), cancel


def called_graph(op: Any, attribute: str) -> Any:
    """Return the graph of the function that ``op`` names in ``attribute``."""
    return graph_by_name(op, op.get_attr(attribute).name)


def known_function(graph: Any, name: str) -> Any:
    """Return the function that a graph or one around it knows by ``name``; None if none does."""
    while graph is not None:
        found = graph._get_function(name)
        if found is not None:
            return found
        graph = getattr(graph, "outer_graph", None)
    return None


def custom_gradient(op: Any) -> Callable[..., Any] | None:
    """Return the gradient that was given to this one op; None if it has that of its type.

    Errors: LookupError if it had one that was not saved with it.
    """
    if op._gradient_function is not None:
        return op._gradient_function  # type: ignore[no-any-return]
    return _ops.get_gradient_function(op) if "_gradient_op_type" in op.node_def.attr else None


def replace_gradient(op: Any, gradient: Callable[..., Any]) -> None:
    """Give one op a gradient of its own."""
    op._gradient_function = gradient


def traced_beside(op: Any, gradient: Callable[..., Any], cotangents: Sequence[tf.Tensor]) -> tuple[Any, list[bool]]:
    """Trace ``gradient(op, *cotangents)`` where it can read the graph of ``op``.

    Return a graph that takes the cotangents and then what it captured, and which of the results there are.
    """
    with op.graph.as_default():
        graph = _func_graph.FuncGraph("gradient")
        with graph.as_default():
            placeholders = [tf.compat.v1.placeholder(each.dtype, each.shape) for each in cotangents]
            graph.inputs = list(placeholders)
            results = gradient(op, *placeholders)
            results = list(results) if isinstance(results, (list, tuple)) else [results]
            graph.outputs = [graph.capture(tf.convert_to_tensor(result)) for result in results if result is not None]
    return graph, [result is not None for result in results]


def called_graphs(op: Any) -> list[Any]:
    """Return the graphs of the functions that ``op`` runs; none for an op that calls nothing."""
    return [graph_by_name(op, name) for name in _called_names(op)]


def _known_called_graphs(op: Any) -> list[Any]:
    """Return them for an op that was made here: one that pfor copied, as all rows share it, left its functions behind.

    It has no effects, else it would have been converted.
    """
    return [graph_by_name(op, name) for name in _called_names(op) if known_function(op.graph, name) is not None]


def _called_names(op: Any) -> list[str]:
    names = [op.get_attr(attribute).name for attribute in CALLED_BY.get(op.type, ())]
    return [*names, *(branch.name for branch in op.get_attr("branches"))] if op.type in _CASES else names


_CASES = ("Case", "StatelessCase")


def graph_by_name(op: Any, name: str) -> Any:
    """Return the graph of a function that the graph of ``op`` knows by name."""
    known = known_function(op.graph, name)
    with op.graph.as_default():  # where functions that it calls in turn are known
        if known is None:  # pfor copied the op, but not what it calls
            return _function_def_to_graph.function_def_to_graph(_context.context().get_function_def(name))
        return function_graph(known)


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


def function_graph(func: Any) -> Any:
    """Return the ``FuncGraph`` of anything that TensorFlow calls a function, built from its definition if need be."""
    if isinstance(func, _func_graph.FuncGraph):
        return func
    graph = getattr(func, "graph", None)
    if isinstance(graph, _func_graph.FuncGraph):
        return graph
    return _function_def_to_graph.function_def_to_graph(func.definition)


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
    registry = _Registry(
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
        except _ConversionAborted as aborted:
            aborted.error.op = aborted.op  # type: ignore[attr-defined]
            raise aborted.error from aborted.error.__cause__


def captured(inner: Any, outer: Any) -> tf.Tensor:
    """Bring what a traced function captured as ``inner``, a variable say, into the current graph."""
    tensor = _ops.get_default_graph().capture(outer)
    _handle_data.copy_handle_data(inner, tensor)
    return tensor


#: TensorFlow's own converters, as they are outside of a conversion.
_STOCK_CONVERTERS: Mapping[str, Converter] = _stock._pfor_converter_registry


def stock_registry() -> Mapping[str, Converter]:
    """Return TensorFlow's own converters by op type."""
    return _STOCK_CONVERTERS


def wrap(tensor: tf.Tensor, *, stacked: bool) -> Any:
    """Return a converter's result: ``tensor``, which differs per row if ``stacked``."""
    assert isinstance(tensor, _tensor.Tensor)
    return _stock.wrap(tensor, stacked)


class _ListOfRows(_stock.WrappedTensor):  # type: ignore[misc]
    """A tensor list that pfor hands from op to op: its content is ours, its tensor only stands in for it."""

    content: Any


#: The name of each graph's stand-in; nothing computes with it.
_stand_ins: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def wrap_list(content: Any) -> Any:
    """Return a converter's result that is a tensor list of known content."""
    graph = _ops.get_default_graph()
    if graph not in _stand_ins:
        with graph.control_dependencies(None):
            handle = tf.raw_ops.EmptyTensorList(element_shape=[0], max_num_elements=0, element_dtype=tf.float32)
        _stand_ins[graph] = handle.name
    value = _ListOfRows(graph.get_tensor_by_name(_stand_ins[graph]), True, False)
    value.content = content
    return value


def list_content(value: Any) -> Any:
    """Return what ``wrap_list`` was given; None for any other wrapped tensor."""
    return value.content if isinstance(value, _ListOfRows) else None


class _DifferingRows(_stock.WrappedTensor):  # type: ignore[misc]
    """A stacked value, padded, that knows the true sizes of its rows."""

    value: Differing


def wrap_differing(value: Differing, shape: tf.TensorShape | None = None) -> Any:
    """Return a converter's result of differing length. What is known of an example's ``shape`` does not differ."""
    if shape is not None and shape.rank is not None:
        for dim, size in enumerate(shape):
            if size is not None and value.lengths[dim] is not None:
                lengths = (*value.lengths[:dim], None, *value.lengths[dim + 1 :])
                value = Differing(resized(value.dense, dim + 1, size), lengths)
    if value.is_fixed:
        return wrap(value.dense, stacked=True)
    if not value.dense.shape.is_fully_defined():
        keep_from_xla()
    wrapped = _DifferingRows(value.dense, True, False)
    wrapped.value = value
    return wrapped


def differing(value: Any) -> Differing | None:
    """Return what ``wrap_differing`` was given; None for any other wrapped tensor."""
    return value.value if isinstance(value, _DifferingRows) else None


def keep_from_xla() -> None:
    """Say that the conversion under way makes sizes that are known only when the graph runs."""
    _registry().keep_from_xla()


def converted_with(pfor_input: Any, inputs: Sequence[Any]) -> list[tf.Tensor]:
    """Convert the op again, by its own converter, with other wrapped operands of which none differs in length.

    Shapes: the results, for each row.
    """
    converter = dict.get(_registry(), pfor_input.op_type)
    if converter is None:
        not_for_these("it has no converter")
    given = _stock._PforInput(pfor_input.pfor, pfor_input.op, list(inputs))
    made = converter(given)
    return [stacked(value, pfor_input) for value in ([made] if isinstance(made, _stock.WrappedTensor) else made)]


def variant_placeholder(like: tf.Tensor) -> tf.Tensor:
    """Return a placeholder of a variant that holds what another does: the shapes of its elements are known by it."""
    made = tf.compat.v1.placeholder(tf.variant, [])
    _handle_data.copy_handle_data(like, made)
    return made


def constant_of(tensor: Any) -> Any:
    """Return a tensor's value as an array where it is known before the graph runs, else None."""
    return _tensor_util.constant_value(tensor)


def stacked(value: Any, pfor_input: Any) -> tf.Tensor:
    """Return a wrapped tensor's value for each row: itself, or repeated if all rows share it."""
    if value.is_stacked:
        return value.t
    known = _tensor_util.constant_value(pfor_input.pfor.loop_len_vector)
    if known is not None and value.t.shape.is_fully_defined() and value.t.dtype not in (tf.resource, tf.variant):
        return tf.broadcast_to(value.t, [int(known[0]), *value.t.shape])
    return _stock._stack(value.t, tf.reshape(_n_rows(pfor_input.pfor), [1])).t


def not_for_these(reason: str) -> NoReturn:
    """Say that a converter has no batched form for the operands at hand: the op is looped by permission, or refused."""
    raise _stock.ConversionNotImplementedError(reason)


def op_definition(op_type: str) -> Any:
    """Return what TensorFlow says of an op's operands, results and attributes: its OpDef."""
    return _op_def_registry.get(op_type)


def has_cpu_kernel(op_type: str) -> bool:
    """Return True if TensorFlow can run the op on a CPU."""
    kernels = _kernels.get_registered_kernels_for_op(op_type).kernel
    return any(kernel.device_type in ("CPU", "DEFAULT") for kernel in kernels)


def same_op(pfor_input: Any, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the outputs of the op that is being converted, with its own attributes, on other inputs."""
    return list(copy_op(pfor_input.op, inputs).outputs)


def copy_op(op: Any, inputs: Sequence[tf.Tensor]) -> Any:
    """Make an op again in the current graph, with its own attributes, on other inputs."""
    made = _stock._create_op(op.type, list(inputs), [output.dtype for output in op.outputs], attrs=op.node_def.attr)
    for before, after in zip(op.outputs, made.outputs, strict=True):
        _handle_data.copy_handle_data(before, after)
    return made


def copied_op(op: Any, inputs: Sequence[tf.Tensor]) -> Any:
    """Return an op of the current graph that does on ``inputs`` what ``op`` does, with shapes inferred anew."""
    # Attributes with an underscore place the op or repeat what is inferred, but for the name of a custom gradient.
    attributes = {
        name: value
        for name, value in op.node_def.attr.items()
        if not name.startswith("_") or name == "_gradient_op_type"
    }
    return _ops.get_default_graph().create_op(
        op.type, list(inputs), [output.dtype for output in op.outputs], attrs=attributes, name=op.name
    )


def is_stateful(op: Any) -> bool:
    """Return True if the op has effects or state beyond reading a variable."""
    return bool(_stock._is_stateful_pfor_op(op))

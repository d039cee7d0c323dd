"""Converters by op type while a conversion lasts: every op is answered and recorded; what has none is looped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops.parallel_for import pfor as _stock

from vectorizer._pfor.graphs import copy_op
from vectorizer._pfor.values import (
    DIFFERS,
    DifferingRows,
    differing,
    list_content,
    not_for_these,
    rows_of,
    stacked,
    wrap,
)
from vectorizer.conversions import CALLING_OPS, Conversion, ConversionLog
from vectorizer.differing import Differing, resized
from vectorizer.row_loop import loop_rows

__all__ = [
    "ConversionAborted",
    "Converter",
    "Registry",
    "converted_with",
    "current_registry",
    "keep_from_xla",
    "same_op",
    "stock_registry",
    "wrap_differing",
]

#: A converter: takes pfor's input object, returns wrapped tensors, one for each output of the op.
Converter = Callable[[Any], Any]


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


class ConversionAborted(BaseException):
    """Carries a converter's error past pfor's own handler, which logs at length and can hide the cause.

    pfor's handler formats the traceback of the op, which a restored graph does not have, and dies on it.
    """

    def __init__(self, op: Any, error: Exception) -> None:
        super().__init__(str(error))
        self.op = op
        self.error = error


class Registry(dict[str, Converter]):
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
                        pfor_input, entry, DIFFERS if differs else "it has no converter", builds=self._loops
                    )
                try:
                    return converter(pfor_input)
                except _stock.ConversionNotImplementedError as error:
                    reason = f"its converter does not take these operands: {error}"
                    return _loop_over_rows(pfor_input, entry, reason, builds=self._loops)
            except ConversionAborted:
                raise
            except Exception as error:
                raise ConversionAborted(pfor_input.op, error) from error
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
    registry = current_registry()
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


def current_registry() -> Registry:
    """Return the registry of the conversion that is under way."""
    registry = _stock._pfor_converter_registry
    assert isinstance(registry, Registry), "it belongs to a conversion"
    return registry


#: TensorFlow's own converters, as they are outside of a conversion.
_STOCK_CONVERTERS: Mapping[str, Converter] = _stock._pfor_converter_registry


def stock_registry() -> Mapping[str, Converter]:
    """Return TensorFlow's own converters by op type."""
    return _STOCK_CONVERTERS


def keep_from_xla() -> None:
    """Say that the conversion under way makes sizes that are known only when the graph runs."""
    current_registry().keep_from_xla()


def converted_with(pfor_input: Any, inputs: Sequence[Any]) -> list[tf.Tensor]:
    """Convert the op again, by its own converter, with other wrapped operands of which none differs in length.

    Shapes: the results, for each row.
    """
    converter = dict.get(current_registry(), pfor_input.op_type)
    if converter is None:
        not_for_these("it has no converter")
    given = _stock._PforInput(pfor_input.pfor, pfor_input.op, list(inputs))
    made = converter(given)
    return [stacked(value, pfor_input) for value in ([made] if isinstance(made, _stock.WrappedTensor) else made)]


def same_op(pfor_input: Any, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the outputs of the op that is being converted, with its own attributes, on other inputs."""
    return list(copy_op(pfor_input.op, inputs).outputs)


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
    wrapped = DifferingRows(value.dense, True, False)
    wrapped.value = value
    return wrapped

"""Wrapped tensors: what converters take and give, whether a value differs from row to row, and in what form it does."""

from __future__ import annotations

import weakref
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow.python.framework import ops as _ops
from tensorflow.python.framework import tensor as _tensor
from tensorflow.python.framework import tensor_util as _tensor_util
from tensorflow.python.ops.parallel_for import pfor as _stock

from vectorizer.differing import Differing

__all__ = [
    "DIFFERS",
    "DifferingRows",
    "NotForThese",
    "differing",
    "list_content",
    "n_rows",
    "not_for_these",
    "rows_of",
    "stacked",
    "wrap",
    "wrap_list",
]

#: What a converter raises for operands that it has no batched form for.
NotForThese = _stock.ConversionNotImplementedError


DIFFERS = (
    "it has no batched form for a value whose length differs from example to example; cut or pad it to a fixed size "
    "before, or reduce it"
)


def n_rows(pfor: Any) -> Any:
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


class DifferingRows(_stock.WrappedTensor):  # type: ignore[misc]
    """A stacked value, padded, that knows the true sizes of its rows."""

    value: Differing


def differing(value: Any) -> Differing | None:
    """Return what ``wrap_differing`` was given; None for any other wrapped tensor."""
    return value.value if isinstance(value, DifferingRows) else None


def stacked(value: Any, pfor_input: Any) -> tf.Tensor:
    """Return a wrapped tensor's value for each row: itself, or repeated if all rows share it."""
    if value.is_stacked:
        return value.t
    known = _tensor_util.constant_value(pfor_input.pfor.loop_len_vector)
    if known is not None and value.t.shape.is_fully_defined() and value.t.dtype not in (tf.resource, tf.variant):
        return tf.broadcast_to(value.t, [int(known[0]), *value.t.shape])
    return _stock._stack(value.t, tf.reshape(n_rows(pfor_input.pfor), [1])).t


def not_for_these(reason: str) -> NoReturn:
    """Say that a converter has no batched form for the operands at hand: the op is looped by permission, or refused."""
    raise _stock.ConversionNotImplementedError(reason)

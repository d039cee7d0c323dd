"""What is in a variant that all rows share, read off the ops that made it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf

from vectorizer._pfor import differing, list_content, wrap, wrap_differing, wrap_list
from vectorizer.converters.constants import folded_constant
from vectorizer.converters.contents import Content, Depth, Optional, Stack
from vectorizer.differing import Differing

__all__ = ["captured", "element_shape", "empty", "known_value", "lent", "placed", "settled"]


def known_value(value: Any) -> Any:
    """Return a wrapped value, with a variant's content if it is known."""
    if list_content(value) is not None:
        return settled(value)
    if value.is_stacked or value.t.dtype != tf.variant:
        return value
    content = _shared(value.t)
    return value if content is None else wrap_list(content)


def settled(value: Any) -> Any:
    """Return a wrapped value, a list with what was to be written to it."""
    content = list_content(value)
    if not isinstance(content, Content) or content.pending is None:
        return value
    at, item = content.pending
    blank = replace(content, pending=None).of_rows(item.shape[0], item.shape[1:].as_list())
    return wrap_list(blank.with_dense(tf.tensor_scatter_nd_update(blank.dense, *placed(at, item))))


def placed(at: tf.Tensor, item: tf.Tensor, places: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the indices and updates of a scatter that writes an item of each row, to ``places`` if not all rows.

    Shapes: at [] or [rows], item [rows, *element], places [rows]; to be written to [n, rows, *element].
    """
    if places is not None:
        return tf.stack([tf.broadcast_to(at, places.shape), tf.cast(places, at.dtype)], axis=1), item
    if at.shape.rank == 0:
        return tf.reshape(at, [1, 1]), item[tf.newaxis]
    return tf.stack([at, tf.range(item.shape[0], dtype=at.dtype)], axis=1), item


def lent(value: Any, lender: tf.Tensor) -> Any:
    """Return a value with the rows that others may compute on."""
    content, differs = list_content(value), differing(value)
    if differs is not None:
        lengths = tuple(None if length is None else tf.gather(length, lender) for length in differs.lengths)
        return wrap_differing(Differing(tf.gather(differs.dense, lender), lengths))
    if content is None:
        return wrap(tf.gather(value.t, lender), stacked=True) if value.is_stacked else value
    if isinstance(content, Stack):
        return wrap_list(
            replace(content, lender=lender if content.lender is None else tf.gather(content.lender, lender))
        )
    if isinstance(content, Optional):
        return wrap_list(
            Optional(None if content.values is None else tuple(lent(part, lender) for part in content.values))
        )
    content = list_content(settled(value))
    if not content.per_row:
        return value
    return wrap_list(content.with_dense(tf.gather(content.dense, lender, axis=1)))


def captured(value: Any, graph: Any) -> Any:
    """Return a value of the surroundings as one of a scratch graph."""
    differs = differing(value)
    if list_content(value) is not None:
        return value
    if differs is None:
        return wrap(graph.capture(value.t), stacked=value.is_stacked)
    lengths = tuple(None if length is None else graph.capture(length) for length in differs.lengths)
    return wrap_differing(Differing(graph.capture(differs.dense), lengths))


def _shared(handle: tf.Tensor) -> Content | Stack | Optional | None:
    op = handle.op
    if op.type == "Identity":
        return _shared(op.inputs[0])
    if op.type == "EmptyTensorList":
        return empty(op)
    if op.type == "OptionalNone":
        return Optional(None)
    if op.type == "OptionalFromValue":
        return Optional(tuple(known_value(wrap(part, stacked=False)) for part in op.inputs))
    if op.type == "TensorListReserve":
        n, element = folded_constant(op.inputs[1]), element_shape(folded_constant(op.inputs[0]))
        return None if n is None else Content(int(n), op.get_attr("element_dtype"), element)
    if op.type == "TensorListFromTensor" and op.inputs[0].shape.is_fully_defined():
        tensor = op.inputs[0]
        n, *element = tensor.shape.as_list()
        return Content(n, tensor.dtype, tuple(element), tensor)
    return None


def empty(op: Any) -> Stack:
    """Return what an EmptyTensorList op makes."""
    return Stack(op.get_attr("element_dtype"), Depth(), shape=element_shape(folded_constant(op.inputs[0])))


def element_shape(shape: Any) -> tuple[int, ...] | None:
    """Return an element's shape from the operand that tells it, where it tells all of it."""
    if shape is None or getattr(shape, "ndim", 0) != 1 or any(size < 0 for size in shape):
        return None
    return tuple(int(size) for size in shape)

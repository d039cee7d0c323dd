"""Tensor lists, what ``tf.TensorArray`` is made of: one dense tensor of a known length while a batch is converted.

Theory of operation. A list of one example becomes ``dense[n, rows, *element]``: its elements stacked over the rows,
the list's own dimension first, so that an element that all rows share the index of is one contiguous piece.

1. The length is known when the graph is built. A list that grows must be shown to end at one length
   (``trips.py``); what rows write at their own last step would give each row a list of another length.
2. Shape and dtype of the elements may become known by the first write only: until then a list is *blank*, and reads
   as zeros, as ``TensorArray.stack`` has it too.
3. In a masked loop, a list may carry an ``origin``: then writes are for the rows in the loop only (``masks.py``), and
   hand it on, by which the loop sees that nothing else happened to the list: no step copies it to choose from.
4. Rows that a piece of the graph is not for read and write within the list there: they can't fail.

XLA compiles all of it, and there are no loops.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf

from vectorizer._pfor import (
    Converter,
    list_content,
    rows_of,
    stacked,
    stock_registry,
    wrap,
    wrap_list,
)
from vectorizer.converters.constants import known_operand
from vectorizer.converters.contents import Content, Stack
from vectorizer.converters.known import element_shape, known_value, placed
from vectorizer.converters.masks import current_mask, valid_index
from vectorizer.converters.rows import rows_where

__all__ = ["CONVERTERS", "as_list"]

_GROWS = (
    "a TensorArray that grows must be seen to end at one length for all examples. Give it its largest size, "
    "tf.TensorArray(dtype, size=n), write within it, and return the number of valid elements too"
)


def as_list(value: Any) -> Content | None:
    """Return the content of a wrapped list, also of one that all rows share; None if its length is not known."""
    content = list_content(known_value(value))
    return content if isinstance(content, Content) else None


def _own(pfor_input: Any) -> Content | None:
    """Return the list that an op works on; None if it has none of ours, and goes the way it went."""
    return as_list(pfor_input.inputs[0])


def _set_item(pfor_input: Any) -> Any:
    index, item = pfor_input.inputs[1:]
    element = item.t.shape[1:] if item.is_stacked else item.t.shape
    content = _own(pfor_input)
    if content is None or not element.is_fully_defined():
        return _stock(pfor_input)
    element = tuple(element.as_list())
    if content.element not in (None, element):
        raise NotImplementedError(f"a list of elements {list(content.element or ())} is given one of {list(element)}")
    if pfor_input.get_attr("resize_if_index_out_of_bounds"):
        content = _resized(content, pfor_input)
    if content.n == 0:
        raise NotImplementedError("it writes to a list of length 0")
    rows = rows_of(pfor_input)
    at = valid_index(index.t, size=content.n, stacked=index.is_stacked)
    if content.dense is None and content.origin is None:
        return wrap_list(replace(content, element=element, pending=(at, stacked(item, pfor_input))))
    content = content.of_rows(rows, element)
    return wrap_list(content.with_dense(_written(content, at, stacked(item, pfor_input))))


def _resized(content: Content, pfor_input: Any) -> Content:
    at = known_operand(pfor_input, 1)
    if at is not None and int(at) >= 0:
        # A list that grows is another list to the loop that it is in.
        return content if int(at) < content.n else replace(content.grown(int(at) + 1), origin=None)
    if not content.is_bounded:
        raise NotImplementedError(_GROWS)
    return content


def _written(content: Content, at: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
    dense = content.dense
    assert dense is not None, "it has elements for each row"
    # Where the list is chosen from as a whole later, it does not matter what the other rows write.
    mask = None if content.origin is None else current_mask()
    # Whoever still reads the list would make the write copy it.
    here = tf.compat.v1.get_default_graph()
    readers = [op for op in dense.consumers() if op.type in ("GatherNd", "GatherV2") and op.graph is here]
    with tf.control_dependencies(readers):
        places, items = placed(at, item, content.places)
        if mask is not None:
            old = tf.gather_nd(dense, places)
            is_one_piece = items.shape.rank > item.shape.rank
            items = rows_where(mask, items[0], old[0])[tf.newaxis] if is_one_piece else rows_where(mask, items, old)
        return tf.tensor_scatter_nd_update(dense, places, items)


def _get_item(pfor_input: Any) -> Any:
    content, index = _own(pfor_input), pfor_input.inputs[1]
    if content is None:
        return _stock(pfor_input)
    content = _readable(content, pfor_input, pfor_input.outputs[0].shape)
    at = valid_index(index.t, size=content.n, stacked=index.is_stacked)
    if not content.per_row:
        return wrap(tf.gather(content.dense, at), stacked=index.is_stacked)
    if not index.is_stacked and content.places is None:
        return wrap(tf.gather(content.dense, at), stacked=True)
    rows = tf.range(rows_of(pfor_input)) if content.places is None else content.places
    places = tf.stack([tf.broadcast_to(at, rows.shape), tf.cast(rows, at.dtype)], axis=1)
    return wrap(tf.gather_nd(content.dense, places), stacked=True)


def _readable(content: Content, pfor_input: Any, element: tf.TensorShape) -> Content:
    """Return the list with its elements, zeros if nothing was written."""
    if content.n == 0 and pfor_input.op_type != "TensorListStack":
        raise NotImplementedError("it reads a list of length 0")
    if content.dense is not None:
        return content
    known = content.element
    if known is None:
        if not element.is_fully_defined():
            raise NotImplementedError("it reads a list before anything is written to it: declare its element_shape")
        known = tuple(element.as_list())
    return replace(content, element=known).of_rows(rows_of(pfor_input))


def _stack(pfor_input: Any) -> Any:
    content = _own(pfor_input)
    if content is None:
        return _stock(pfor_input)
    content = _readable(content, pfor_input, pfor_input.outputs[0].shape[1:])
    assert content.dense is not None, "it was made readable"
    if not content.per_row:
        return wrap(tf.identity(content.dense), stacked=False)
    return wrap(_rows_first(content.dense), stacked=True)


def _rows_first(dense: tf.Tensor) -> tf.Tensor:
    return tf.transpose(dense, [1, 0, *range(2, dense.shape.rank)])


def _gather(pfor_input: Any) -> Any:
    content, indices = _own(pfor_input), pfor_input.inputs[1]
    if content is None:
        return _stock(pfor_input)
    content = _readable(content, pfor_input, pfor_input.outputs[0].shape[1:])
    at = valid_index(indices.t, size=content.n, stacked=indices.is_stacked)
    if not content.per_row:
        return wrap(tf.gather(content.dense, at), stacked=indices.is_stacked)
    assert content.dense is not None, "it was made readable"
    if not indices.is_stacked:
        return wrap(_rows_first(tf.gather(content.dense, at)), stacked=True)
    return wrap(tf.gather(_rows_first(content.dense), at, batch_dims=1), stacked=True)


def _scatter(pfor_input: Any) -> Any:
    content = _own(pfor_input)
    items, indices = pfor_input.inputs[1:]
    element = items.t.shape[2:] if items.is_stacked else items.t.shape[1:]
    if content is None or not element.is_fully_defined():
        return _stock(pfor_input)
    highest = known_operand(pfor_input, 2)
    if indices.is_stacked or highest is None or (highest.size and int(highest.max()) >= content.n):
        raise NotImplementedError(f"TensorArray.scatter takes constant indices within its size, here {content.n}")
    rows = rows_of(pfor_input)
    content = replace(content.of_rows(rows, element.as_list()), origin=None)
    updates = stacked(items, pfor_input)
    updates = tf.transpose(updates, [1, 0, *range(2, updates.shape.rank)])
    return wrap_list(content.with_dense(tf.tensor_scatter_nd_update(content.dense, indices.t[:, tf.newaxis], updates)))


def _concat(pfor_input: Any) -> Any:
    content = _own(pfor_input)
    if content is None or content.dense is None or not content.element:
        return _stock(pfor_input)
    n, k, rest = content.n, content.element[0], content.element[1:]
    lengths = wrap(tf.fill([n], tf.constant(k, tf.int64)), stacked=False)
    if not content.per_row:
        return [wrap(tf.reshape(content.dense, [n * k, *rest]), stacked=False), lengths]
    rows = rows_of(pfor_input)
    return [wrap(tf.reshape(_rows_first(content.dense), [rows, n * k, *rest]), stacked=True), lengths]


def _from_tensor(pfor_input: Any) -> Any:
    tensor = pfor_input.inputs[0]
    if not tensor.is_stacked or not tensor.t.shape.is_fully_defined():
        return _stock(pfor_input)
    _, n, *element = tensor.t.shape.as_list()
    return wrap_list(Content(n, tensor.t.dtype, tuple(element), _rows_first(tensor.t), per_row=True))


def _length(pfor_input: Any) -> Any:
    content = list_content(known_value(pfor_input.inputs[0]))
    if isinstance(content, Stack):
        return wrap(content.depth.tensor(), stacked=content.depth.per_row)
    return _stock(pfor_input) if content is None else wrap(tf.constant(content.n), stacked=False)


def _element_shape(pfor_input: Any) -> Any:
    dtype = pfor_input.get_attr("shape_type")
    content = list_content(known_value(pfor_input.inputs[0]))
    if content is None:
        return _stock(pfor_input)
    known = content.element
    if isinstance(content, Stack):
        known = getattr(content.element, "shape", None) or content.shape
    return wrap(tf.constant(-1 if known is None else list(known), dtype), stacked=False)


def _identity(pfor_input: Any) -> Any:
    value = pfor_input.inputs[0]
    return _stock(pfor_input) if list_content(value) is None else value


def _resize(pfor_input: Any) -> Any:
    content, n = _own(pfor_input), known_operand(pfor_input, 1)
    if content is None or n is None:
        raise NotImplementedError(f"a list is given another length, which is not known: {_GROWS}")
    n = int(n)
    if n < content.n:
        dense = None if content.dense is None else content.dense[:n]
        return wrap_list(replace(content, n=n, dense=dense, origin=None))
    return wrap_list(content if n == content.n else replace(content.grown(n), origin=None))


def _reserve(pfor_input: Any) -> Any:
    if pfor_input.inputs[1].is_stacked:
        raise NotImplementedError(
            "a TensorArray's size depends on the example: give it the largest size, and return the number of valid "
            "elements too"
        )
    n = known_operand(pfor_input, 1)
    if n is None:
        return _stock(pfor_input)
    return wrap_list(Content(int(n), pfor_input.get_attr("element_dtype"), element_shape(known_operand(pfor_input, 0))))


def _stock(pfor_input: Any) -> Any:
    if any(list_content(value) is not None for value in pfor_input.inputs):
        raise NotImplementedError(f"{pfor_input.op_type} takes elements of a known shape: declare element_shape")
    return stock_registry()[pfor_input.op_type](pfor_input)


CONVERTERS: dict[str, Converter] = {
    "Identity": _identity,
    "TensorListConcatV2": _concat,
    "TensorListElementShape": _element_shape,
    "TensorListFromTensor": _from_tensor,
    "TensorListGather": _gather,
    "TensorListGetItem": _get_item,
    "TensorListLength": _length,
    "TensorListReserve": _reserve,
    "TensorListResize": _resize,
    "TensorListScatterIntoExistingList": _scatter,
    "TensorListSetItem": _set_item,
    "TensorListStack": _stack,
}

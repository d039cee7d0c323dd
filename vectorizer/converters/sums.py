"""Sums and zeros of lists, as the gradients of what reads them: AddN, ZerosLike.

The gradient of reading one element is a list that is zero elsewhere, and a loop adds one in each step. Such a list is
not made: what is in it is added to the sum where it belongs, so that a loop over n elements takes n steps of one
element each, and not n steps of n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, list_content, rows_of, stock_registry, wrap_list
from vectorizer.converters.contents import Content, Stack
from vectorizer.converters.known import known_value, placed, settled
from vectorizer.converters.masks import current_mask
from vectorizer.converters.rows import rows_where
from vectorizer.converters.stacks import added, zeroed

__all__ = ["CONVERTERS"]


def _add(pfor_input: Any) -> Any:
    if pfor_input.op.inputs[0].dtype != tf.variant:
        return stock_registry()["AddN"](pfor_input)
    contents = [
        list_content(value) or list_content(known_value(value))  # one that is pending stays so
        for value in pfor_input.inputs
    ]
    rows = rows_of(pfor_input)
    if all(isinstance(content, Stack) for content in contents):
        return wrap_list(contents[0] if len(contents) == 1 else added(contents, rows))
    if all(isinstance(content, Content) for content in contents):
        return wrap_list(_added(contents, rows))
    raise NotImplementedError("it adds lists of which not all are known")


def _added(contents: Sequence[Content], rows: int) -> Content:
    if len({content.n for content in contents}) > 1:
        raise NotImplementedError("it adds lists of different lengths")
    whole = [content for content in contents if content.dense is not None]
    pending = [content for content in contents if content.pending is not None]
    if not whole and not pending:
        return contents[0]
    whole.sort(key=lambda content: content.origin is None)
    if not whole:
        whole.append(list_content(settled(wrap_list(pending.pop()))))
    total = whole[0].of_rows(rows)
    for other in whole[1:]:
        terms = [total.dense, other.of_rows(rows).dense]
        total = replace(total, dense=tf.add_n(terms), origin=None)
    for one in pending:
        assert one.pending is not None, "they were picked for it"
        at, item = one.pending
        mask = None if total.origin is None else current_mask()
        if mask is not None:
            item = rows_where(mask, item, tf.zeros_like(item))
        total = replace(total, dense=tf.tensor_scatter_nd_add(total.dense, *placed(at, item)))
    return total


def _zeros(pfor_input: Any) -> Any:
    if pfor_input.op.inputs[0].dtype != tf.variant:
        return stock_registry()["ZerosLike"](pfor_input)
    content = list_content(known_value(pfor_input.inputs[0]))
    if isinstance(content, Stack):
        return wrap_list(zeroed(content, rows_of(pfor_input)))
    if isinstance(content, Content):
        return wrap_list(Content(content.n, content.dtype, content.element))
    raise NotImplementedError("it makes zeros like a list that is not known")


CONVERTERS: dict[str, Converter] = {"AddN": _add, "ZerosLike": _zeros}

"""Updates by index: ScatterNd, TensorScatterAdd, -Max, -Min, -Sub, -Update.

pfor has a converter for the last only. The number of the row goes before each index, so that it points into the
stacked tensor; an index out of range fails and never reaches into another row. Updates of one row are made in
the order in which the function makes them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, wrap
from vectorizer.converters.folding import sizes
from vectorizer.converters.indexing import MAX_INDEX_DEPTH
from vectorizer.converters.stacking import numbered

__all__ = ["CONVERTERS"]


def _own_indices(pfor_input: Any, position: int) -> tf.Tensor:
    shape = pfor_input.op.inputs[position].shape
    if shape.rank is None or shape[-1] is None or shape[-1] >= MAX_INDEX_DEPTH:
        not_for_these(f"indices of shape {shape} have no known depth below {MAX_INDEX_DEPTH}")
    return numbered(stacked(pfor_input.input(position), pfor_input))


def _tensor_scatter(pfor_input: Any) -> Any:
    tensor, _, updates = pfor_input.inputs
    inputs = [stacked(tensor, pfor_input), _own_indices(pfor_input, 1), stacked(updates, pfor_input)]
    return wrap(same_op(pfor_input, inputs)[0], stacked=True)


def _scatter_nd(pfor_input: Any) -> Any:
    _, updates, shape = pfor_input.inputs
    if shape.is_stacked:
        not_for_these("the shape of the result differs from row to row")
    indices = _own_indices(pfor_input, 0)
    rows = tf.cast(sizes(indices)[0], shape.t.dtype)
    inputs = [indices, stacked(updates, pfor_input), tf.concat([[rows], shape.t], axis=0)]
    return wrap(same_op(pfor_input, inputs)[0], stacked=True)


CONVERTERS: dict[str, Converter] = {
    "ScatterNd": _scatter_nd,
    "TensorScatterAdd": _tensor_scatter,
    "TensorScatterMax": _tensor_scatter,
    "TensorScatterMin": _tensor_scatter,
    "TensorScatterSub": _tensor_scatter,
    "TensorScatterUpdate": _tensor_scatter,
}

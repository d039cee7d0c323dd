"""A slice of a tensor replaced: TensorStridedSliceUpdate.

Where the slice begins and ends alike for all rows it is a slice of the stacked tensor, with all rows before it. Where
it begins elsewhere in each row, the places that it covers are found by slicing the numbers of all places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, stacked, wrap
from vectorizer.converters.folding import reshape_to, sizes
from vectorizer.converters.slicing import planned, sliced
from vectorizer.converters.stacking import numbered, spread

__all__ = ["CONVERTERS"]

#: The bits of a mask move up by one, and the rows are taken whole: no begin and no end.
_MASKS = {"begin_mask": 1, "ellipsis_mask": 0, "end_mask": 1, "new_axis_mask": 0, "shrink_axis_mask": 0}


def _update(pfor_input: Any) -> Any:
    tensor, _, _, _, value = pfor_input.inputs
    own = stacked(tensor, pfor_input)
    if any(given.is_stacked for given in pfor_input.inputs[1:4]):
        return wrap(_scattered(pfor_input, own, value), stacked=True)
    begin, end, strides = (
        tf.concat([tf.constant([first], given.t.dtype), given.t], 0)
        for first, given in zip((0, 0, 1), pfor_input.inputs[1:4], strict=True)
    )
    masks = {name: pfor_input.get_attr(name) << 1 | bit for name, bit in _MASKS.items()}
    part = tf.strided_slice(own, begin, end, strides, **masks)
    rank, part_rank = pfor_input.op.inputs[4].shape.rank, part.shape.rank
    if rank is None or part_rank is None or not part.shape.is_fully_defined():
        not_for_these("the size of the slice is not known")
    # The kernel takes values of the slice's shape alone.
    values = tf.broadcast_to(spread(value, rank=rank, to_rank=part_rank - 1), part.shape)
    updated = tf.raw_ops.TensorStridedSliceUpdate(
        input=own, begin=begin, end=end, strides=strides, value=values, **masks
    )
    return wrap(updated, stacked=True)


def _scattered(pfor_input: Any, own: tf.Tensor, value: Any) -> tf.Tensor:
    """Put the values at the places of each row's slice. Shapes: tensor [rows, *s]."""
    shape = pfor_input.op.inputs[0].shape
    if not shape.is_fully_defined():
        not_for_these(f"the size of {shape} is not known")
    size = int(np.prod(shape.as_list()))
    plan = planned(pfor_input, shape.rank)
    numbers = wrap(tf.reshape(tf.range(size), shape), stacked=False)
    places, _ = sliced(numbers, plan.fixed, plan.moving)
    # The shape of the slice in the function, after dimensions went and came.
    part = [n for dim, n in enumerate(places.shape[1:]) if dim not in plan.shrunk]
    for dim in plan.new:
        part.insert(dim, 1)
    rows = sizes(own)[0]
    rank = pfor_input.op.inputs[4].shape.rank
    if rank is None or None in part:
        not_for_these("the size of the slice is not known")
    values = tf.broadcast_to(spread(value, rank=rank, to_rank=len(part)), [rows, *part])
    flat = tf.tensor_scatter_nd_update(
        reshape_to(own, [rows, size]), numbered(tf.reshape(places, [rows, -1, 1])), tf.reshape(values, [rows, -1])
    )
    return reshape_to(flat, [rows, *shape])


CONVERTERS: dict[str, Converter] = {"TensorStridedSliceUpdate": _update}

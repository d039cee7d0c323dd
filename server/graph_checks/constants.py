"""How much memory constants take once they are unfolded.

A constant of a few bytes can say "this value, for a shape of a trillion": TensorFlow repeats the last value that is
given. So sizes are of the shape, and what no file holds has a limit of its own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tensorflow as tf

from server.graph_checks.errors import GraphDamaged, GraphTooLarge, OpRefused, place
from server.graph_checks.limits import GraphLimits

__all__ = ["ConstantSizes", "tensor_bytes"]

#: What TensorFlow keeps for a string, besides its characters where they are many.
STRING_BYTES = 24


def tensor_bytes(dtype: int, shape: Any) -> int | None:
    """Return how many bytes a tensor takes (without the characters of strings).

    None where a dimension is unknown, or the dtype is of no plain values.
    """
    item_bytes = _item_bytes(dtype)
    if item_bytes is None or shape.unknown_rank:
        return None
    n_elements = 1
    for dim in shape.dim:
        if dim.size < 0:
            return None
        n_elements *= dim.size
    return n_elements * item_bytes


@cache
def _item_bytes(dtype: int) -> int | None:
    if dtype in _HANDLES:
        return None
    try:
        return STRING_BYTES if dtype == tf.string.as_datatype_enum else int(tf.as_dtype(dtype).size)
    except (TypeError, KeyError):
        return None


#: A handle in a file names a variable of some session; a variant is decoded by whatever kind it names.
_HANDLES = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)


class ConstantSizes:
    """The constants of one SavedModel, counted as they come."""

    def __init__(self, limits: GraphLimits) -> None:
        self._limits = limits
        #: Bytes of all that were added, unfolded.
        self.total_bytes = 0
        self._filled_bytes = 0

    def add(self, node: Any, function: str) -> None:
        """Count the attribute ``value`` of a node. Errors: GraphTooLarge; GraphDamaged; OpRefused."""
        value = node.attr.get("value")
        if value is None or value.WhichOneof("value") != "tensor":
            raise GraphDamaged(
                f"{node.op} ({place(node.name, function)}) has no value; save the model again with tf.saved_model.save"
            )
        tensor = value.tensor
        if tensor.dtype in _HANDLES or tensor.resource_handle_val or tensor.variant_val:
            raise OpRefused(
                f"{node.op} ({place(node.name, function)}) is a constant of a resource or a variant, which would name "
                "what is in the server's memory; save the model again with tf.saved_model.save"
            )
        size = tensor_bytes(tensor.dtype, tensor.tensor_shape)
        if size is None:
            where = place(node.name, function)
            raise GraphDamaged(f"{node.op} ({where}) has no shape or dtype that a constant can have")
        if tensor.string_val:
            # The last one is what the rest of the shape is filled with.
            size += max(size // STRING_BYTES - len(tensor.string_val), 0) * len(tensor.string_val[-1])
        limits = self._limits
        if size > limits.max_constant_bytes:
            raise GraphTooLarge(
                f"constant {place(node.name, function)} takes {size} bytes, over max_constant_bytes = "
                f"{limits.max_constant_bytes}: compute it in the graph, or keep it in a variable"
            )
        self.total_bytes += size
        if size > limits.max_filled_bytes // 2**16:
            self._filled_bytes += max(size - tensor.ByteSize(), 0)
        for limit, counted in (("max_constants_bytes", self.total_bytes), ("max_filled_bytes", self._filled_bytes)):
            if counted > getattr(limits, limit):
                raise GraphTooLarge(
                    f"with {place(node.name, function)} the constants take over {limit} = "
                    f"{getattr(limits, limit)} bytes: compute them in the graph, or keep them in variables"
                )

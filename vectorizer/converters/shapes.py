"""Changes of shape that move no element: Reshape, ExpandDims, Squeeze; and questions for a shape.

A per-example function adds and removes dimensions of 1 around its products, and each of them becomes a reshape of
the stacked value. Where sizes are known, chains of them are folded into one, or into none: what stands between
a product and its bias also keeps TensorFlow's optimizer from fusing the two.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, stock_registry, wrap

__all__ = ["CONVERTERS", "before_reshapes", "reshaped"]

_SHAPE_OPS = frozenset({"ExpandDims", "Reshape", "Squeeze"})


def before_reshapes(tensor: tf.Tensor) -> tf.Tensor:
    """Return what a tensor was before the last changes of its shape, as far as shapes are known."""
    while tensor.op.type in _SHAPE_OPS and tensor.op.inputs[0].shape.is_fully_defined():
        tensor = tensor.op.inputs[0]
    return tensor


def reshaped(tensor: tf.Tensor, shape: list[int]) -> tf.Tensor:
    """Return ``tensor`` in a fully known shape, made from before the last changes of shape that led to it."""
    source = before_reshapes(tensor)
    return source if source.shape.as_list() == shape else tf.reshape(source, shape)


def _reshape(pfor_input: Any) -> Any:
    stacked, is_stacked, _ = pfor_input.input(0)
    per_example = pfor_input.outputs[0].shape
    is_known = is_stacked and stacked.shape.is_fully_defined() and per_example.is_fully_defined()
    if not is_known or any(other.is_stacked for other in pfor_input.inputs[1:]):
        if pfor_input.op_type == "Squeeze":
            return _squeeze(pfor_input)
        return stock_registry()[pfor_input.op_type](pfor_input)
    return wrap(reshaped(stacked, [stacked.shape[0], *per_example.as_list()]), stacked=True)


def _squeeze(pfor_input: Any) -> Any:
    """Squeeze where the number of rows is not known, as in a branch.

    Without named dimensions, pfor passes a squeeze on as it is, and at one row it takes the row dimension off too.
    Keras' recurrent cells contain one.
    """
    value = pfor_input.stacked_input(0)
    dims = list(pfor_input.get_attr("squeeze_dims"))
    if not dims:
        shape = pfor_input.op.inputs[0].shape
        if not shape.is_fully_defined():
            raise NotImplementedError(f"which dimensions of {shape} are 1 is not known; name them, tf.squeeze(x, axis)")
        dims = [dim for dim, size in enumerate(shape) if size == 1]
    if not dims:
        return wrap(tf.identity(value), stacked=True)
    # Dimensions that are counted from the end stay where they are.
    return wrap(tf.squeeze(value, [dim + 1 if dim >= 0 else dim for dim in dims]), stacked=True)


def _shape(pfor_input: Any) -> Any:
    """Return the shape of an example as a constant, where it is known: what is computed from it then is one too."""
    shapes = [value.t.shape[1:] if value.is_stacked else value.t.shape for value in pfor_input.inputs]
    if not all(shape.is_fully_defined() for shape in shapes):
        return stock_registry()[pfor_input.op_type](pfor_input)
    if pfor_input.op_type == "Rank":
        return wrap(tf.constant(shapes[0].rank, tf.int32), stacked=False)
    dtype = pfor_input.get_attr("out_type")
    if pfor_input.op_type == "Size":
        return wrap(tf.constant(shapes[0].num_elements(), dtype), stacked=False)
    return [wrap(tf.constant(shape.as_list(), dtype, [shape.rank]), stacked=False) for shape in shapes]


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(sorted(_SHAPE_OPS), _reshape),
    **dict.fromkeys(("Rank", "Shape", "ShapeN", "Size"), _shape),
}

"""Batched graphs as functions that XLA must compile, with another form of the ops that XLA compiles badly.

Theory of operation. A graph is the same for TensorFlow's kernels and for XLA, but what is fast is not. A depthwise
convolution has a good kernel; XLA's CPU compiler makes a loop over single elements of it, 14 to 74 times as slow. As a
sum of shifted slices, each times one number of each channel, it is what XLA is good at: one loop along the channels,
fused with the normalization before and the activation after it. TensorFlow runs those slices one by one, 4 to 35 times
as slow as its kernel. So the batched graph keeps the kernel, and its ops are made once more only for XLA.

Source: 12 shapes of MobileNetV2 and EfficientNet, filters of 3x3 and 5x5, 8 rows, one thread. Alone, the slices under
XLA take 0.6 to 1.0 of the kernel's time at stride 1 and 1.5 to 3.5 times at stride 2; with normalizations and
activations around them, 0.4 to 0.7 of the kernels' time at both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from vectorizer.effects import walk_ops
from vectorizer.retrace import Retracing
from vectorizer.source import SourceLines

__all__ = ["for_xla"]

#: Every tap is code in the compiled loop. Larger filters than 7 by 7 were not measured.
_MAX_TAPS = 49
#: The kernel sums smaller floats in float32.
_DTYPES = (tf.float32, tf.float64)


def for_xla(graph: Any) -> Any:
    """Return a batched graph as a concrete function that XLA must compile.

    Shapes: inputs, by name, and outputs are those of ``graph``; it shares its variables.
    """
    _, specs = graph.structured_input_signature
    compiled = _made_again(graph) if any(_has_own_form(op) for op in walk_ops(graph.graph)) else _called(graph)
    return tf.function(compiled, jit_compile=True, autograph=False).get_concrete_function(**specs)


def _called(graph: Any) -> Callable[..., Any]:
    def compiled(**inputs: tf.Tensor) -> Any:
        return graph(**inputs)

    return compiled


def _made_again(graph: Any) -> Callable[..., Any]:
    def compiled(**inputs: tf.Tensor) -> Any:
        current = tf.compat.v1.get_default_graph()
        for variable in graph.variables:
            current.watch_variable(variable)
        arguments = [inputs[name] for name in graph.function_type.parameters]
        tensors = (*arguments, *map(current.capture, graph.captured_inputs))
        given = {inner.name: outer for inner, outer in zip(graph.inputs, tensors, strict=True)}
        outputs = Retracing(lines=SourceLines(), own_form=_own_form).run(graph.graph, given, graph.outputs)
        return tf.nest.pack_sequence_as(graph.structured_outputs, outputs)

    return compiled


def _has_own_form(op: Any) -> bool:
    if op.type != "DepthwiseConv2dNative" or op.get_attr("data_format") != b"NHWC":
        return False
    images, kernel = op.inputs
    return bool(
        images.dtype in _DTYPES
        and images.shape.is_fully_defined()
        and kernel.shape.is_fully_defined()
        and kernel.shape[0] * kernel.shape[1] <= _MAX_TAPS
        and set(op.get_attr("dilations")) == {1}  # the kernel knows no others; TensorFlow spreads the images instead
    )


def _own_form(op: Any, inputs: Sequence[tf.Tensor]) -> Sequence[tf.Tensor] | None:
    return (
        [_sum_of_slices(*inputs, padding=_padding(op), strides=op.get_attr("strides")[1:3])]
        if _has_own_form(op)
        else None
    )


def _sum_of_slices(
    images: tf.Tensor, kernel: tf.Tensor, *, padding: Sequence[tuple[int, int]], strides: Sequence[int]
) -> tf.Tensor:
    """Shapes: images [n, h, w, c], kernel [kh, kw, c, m] -> [n, h', w', c * m]."""
    n, _, _, channels = images.shape
    *taps, _, multiplier = kernel.shape
    padded = tf.pad(images, [(0, 0), *padding, (0, 0)])
    sizes = [(size - taps[axis]) // strides[axis] + 1 for axis, size in enumerate(padded.shape[1:3])]
    total: tf.Tensor | None = None
    for row in range(taps[0]):
        for column in range(taps[1]):
            window = tuple(
                slice(first, first + (size - 1) * stride + 1, stride)
                for first, size, stride in zip((row, column), sizes, strides, strict=True)
            )
            # Channel c's filters are neighbours in the output.
            term = padded[(slice(None), *window, slice(None), tf.newaxis)] * kernel[row, column]
            total = term if total is None else total + term
    return tf.reshape(total, [n, *sizes, channels * multiplier])


def _padding(op: Any) -> list[tuple[int, int]]:
    """Return what is added before and after the images' rows and columns."""
    how = op.get_attr("padding")
    if how == b"VALID":
        return [(0, 0), (0, 0)]
    if how == b"EXPLICIT":
        _, _, top, bottom, left, right, _, _ = op.get_attr("explicit_paddings")
        return [(top, bottom), (left, right)]
    images, kernel = op.inputs
    padding = []
    for size, taps, stride in zip(images.shape[1:3], kernel.shape[:2], op.get_attr("strides")[1:3], strict=True):
        missing = max((-(-size // stride) - 1) * stride + taps - size, 0)
        padding.append((missing // 2, missing - missing // 2))
    return padding

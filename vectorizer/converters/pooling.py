"""The gradient of max pooling, where windows neither overlap nor reach over the edge: by comparison.

Each gradient goes to the first largest element of its window. Where the windows divide the image, that is a question
to each element alone: whether it is the largest, and none before it is. XLA's own form sorts gradients in one by one:
pools of 2 x 2 over 128 images of 28 x 28 x 32 take it 98 ms, and this 14 ms; TensorFlow's kernel takes 38 ms, and this
as a graph 23 ms. Who wins does not depend on the gradients, so that the elements of a Jacobian share it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, stock_registry, wrap

__all__ = ["CONVERTERS"]

#: Larger windows were not measured.
_MOST_PLACES = 4


def _max_pool_gradient(pfor_input: Any) -> Any:
    """Shapes: images [n, h, w, c], pooled and gradients [n, h / k, w / k, c], each with rows or without -> images."""
    window = _window(pfor_input)
    if window is None:
        return stock_registry()["MaxPoolGrad"](pfor_input)
    height, width = window
    images, pooled, gradients = (
        value.t if value.is_stacked else value.t[tf.newaxis] for value in (pfor_input.input(at) for at in range(3))
    )
    _, n, tall, wide, channels = images.shape
    down, across = tall // height, wide // width

    def split(value: tf.Tensor, height: int, width: int) -> tf.Tensor:
        return tf.reshape(value, [-1, n * down, height, across, width, channels])

    first = _first(tf.logical_not(split(images, height, width) < split(pooled, 1, 1)))
    of_images = tf.where(first, split(gradients, 1, 1), tf.zeros([], gradients.dtype))
    return wrap(tf.reshape(of_images, [-1, n, tall, wide, channels]), stacked=True)


def _first(is_largest: tf.Tensor) -> tf.Tensor:
    """Keep the first of each window. Shapes: [rows, n * down, height, across, width, channels]."""
    height, width = is_largest.shape[2], is_largest.shape[4]
    taken = None
    lines = []
    for line in range(height):
        places = []
        for place in range(width):
            here = is_largest[:, :, line : line + 1, :, place : place + 1]
            places.append(here if taken is None else tf.logical_and(here, tf.logical_not(taken)))
            taken = here if taken is None else tf.logical_or(taken, here)
        lines.append(tf.concat(places, 4))
    return tf.concat(lines, 2)


def _window(pfor_input: Any) -> tuple[int, int] | None:
    """Return the window's height and width; None if windows overlap or reach over the edge, or sizes are not known."""
    images = pfor_input.op.inputs[0].shape
    one, height, width, other = pfor_input.get_attr("ksize")
    divides = (
        pfor_input.get_attr("data_format") == b"NHWC"
        and list(pfor_input.get_attr("strides")) == [one, height, width, other]
        and one == other == 1
        and height * width <= _MOST_PLACES
        and pfor_input.get_attr("padding") in (b"SAME", b"VALID")
        and all(value.t.shape.is_fully_defined() for value in pfor_input.inputs)
        and images.num_elements() > 0
        and images[1] % height == images[2] % width == 0
    )
    return (height, width) if divides else None


CONVERTERS: dict[str, Converter] = {"MaxPoolGrad": _max_pool_gradient}

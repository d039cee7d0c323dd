"""What XLA computes otherwise than TensorFlow's kernels is not compiled by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from vectorizer.not_for_xla import not_for_xla

IMAGES = tf.constant(np.random.default_rng(0).uniform(size=(2, 5, 6, 1)).astype(np.float32))


def resizing(height: int, width: int, **options: bool) -> Any:
    def resized(images: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.ResizeBilinear(images=images, size=[height, width], **options)

    return tf.function(resized, autograph=False)


def found(function: Any) -> frozenset[str]:
    return not_for_xla(function.get_concrete_function(IMAGES).graph)


@pytest.mark.parametrize(
    ("size", "options"),
    [
        ((9, 6), {"half_pixel_centers": True}),
        ((10, 18), {}),
        ((13, 6), {"align_corners": True}),
    ],
)
def test_resize_by_a_fraction_that_floats_cannot_hold_is_not_compiled(
    size: tuple[int, int], options: dict[str, bool]
) -> None:
    """XLA and the kernel mixed other pixels where a place fell on a pixel."""
    resize = resizing(*size, **options)
    assert found(resize) == {"ResizeBilinear"}
    compiled = tf.function(resize, jit_compile=True)(IMAGES)
    assert np.abs(compiled - resize(IMAGES)).max() > 1e-3


def test_resize_by_a_fraction_that_floats_hold_is_compiled() -> None:
    sizes = [(10, 3), (20, 24), (5, 48)]
    resizes = [resizing(*size, half_pixel_centers=half) for size in sizes for half in (False, True)]
    resizes += [resizing(5, 11, align_corners=True), resizing(17, 1, align_corners=True)]
    together = tf.function(lambda images: [resize(images) for resize in resizes], autograph=False)
    assert found(together) == set()
    compiled = tf.function(together, jit_compile=True)(IMAGES)
    for ours, kernels in zip(compiled, together(IMAGES), strict=True):
        np.testing.assert_allclose(ours, kernels, atol=1e-6)


def test_resize_inside_of_a_branch_and_of_unknown_size_and_its_gradient_are_found() -> None:
    def branch(images: tf.Tensor) -> tf.Tensor:
        return tf.cond(images[0, 0, 0, 0] > 0, lambda: resizing(10, 18)(images), lambda: tf.zeros([2, 10, 18, 1]))

    assert found(tf.function(branch)) == {"ResizeBilinear"}

    def gradient(images: tf.Tensor) -> Any:
        return tf.gradients(resizing(9, 6, half_pixel_centers=True)(images), images)

    assert found(tf.function(gradient)) >= {"ResizeBilinearGrad"}
    of_any_size = resizing(10, 12).get_concrete_function(tf.TensorSpec([2, None, None, 1]))
    assert not_for_xla(of_any_size.graph) == {"ResizeBilinear"}

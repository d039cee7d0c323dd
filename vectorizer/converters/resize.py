"""Images in another size or place: resizing, cropping, projective transforms, with their derivatives; boxes on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, same_op, stacked, wrap
from vectorizer.converters.folding import batch_folding, folded, sizes, unfolded

__all__ = ["CONVERTERS"]


def _is_nowhere(boxes: tf.Tensor, images: Sequence[Any], crops: Sequence[Any]) -> tf.Tensor:
    """Tell boxes so large that a place within them overflows to no number.

    TensorFlow's kernels read, or write, at whatever address such a place comes out as.
    Shapes: boxes [rows, boxes, 4]; ``images`` and ``crops`` are heights and widths -> [rows, boxes].
    """
    top, left, bottom, right = tf.unstack(boxes, axis=-1)
    nowhere = []
    for low, high, size, n in zip((top, left), (bottom, right), images, crops, strict=True):
        reach = tf.cast(size - 1, boxes.dtype)
        step = (high - low) * reach / tf.cast(tf.maximum(n - 1, 1), boxes.dtype)
        places = (low * reach)[..., tf.newaxis] + tf.cast(tf.range(n), boxes.dtype) * step[..., tf.newaxis]
        of_one = (0.5 * (low + high) * reach)[..., tf.newaxis]
        nowhere.append(tf.reduce_any(tf.math.is_nan(tf.where(n > 1, places, of_one)), -1))
    return nowhere[0] | nowhere[1]


def _image_of_each_box(boxes_of: tf.Tensor, n_images: Any, *, refused: tf.Tensor) -> tf.Tensor:
    """Return the place of each box's image among the images of all rows; -1, which the kernel refuses, if none.

    Without this check a number out of range would show a box of another row's image.
    Shapes: [rows, boxes] -> [rows * boxes].
    """
    rows = sizes(boxes_of)[0]
    is_known = (boxes_of >= 0) & (boxes_of < n_images) & ~refused
    first = (tf.range(rows) * n_images)[:, tf.newaxis]
    return folded(tf.where(is_known, boxes_of + first, -1))


def _crop_and_resize(pfor_input: Any) -> Any:
    """Shapes: images [rows, n, h, w, c] or shared, boxes [rows, k, 4], their images [rows, k], the crops' size [2]."""
    images, images_are_stacked, _ = pfor_input.input(0)
    boxes = stacked(pfor_input.input(1), pfor_input)
    image_of = stacked(pfor_input.input(2), pfor_input)
    size = pfor_input.unstacked_input(3)
    *_, height, width, _ = sizes(images)
    refused = _is_nowhere(boxes, (height, width), tf.unstack(size, 2))
    if images_are_stacked:
        place = _image_of_each_box(image_of, sizes(images)[1], refused=refused)
        images = folded(images)
    else:
        place = folded(tf.where(refused, -1, image_of))
    (crops,) = same_op(pfor_input, [images, folded(boxes), place, size])
    return wrap(unfolded(crops, sizes(boxes)[0]), stacked=True)


def _crop_gradient_of_image(pfor_input: Any) -> Any:
    """Shapes: gradients [rows, k, h', w', c], boxes [rows, k, 4], their images [rows, k], the images' size [4]."""
    gradients, boxes, image_of = (stacked(pfor_input.input(index), pfor_input) for index in range(3))
    n_images, height, width, channels = tf.unstack(pfor_input.unstacked_input(3), 4)
    rows, _, *crop, _ = sizes(gradients)
    place = _image_of_each_box(image_of, n_images, refused=_is_nowhere(boxes, (height, width), crop))
    size = tf.stack([n_images * rows, height, width, channels])
    (images,) = same_op(pfor_input, [folded(gradients), folded(boxes), place, size])
    return wrap(unfolded(images, rows), stacked=True)


def _crop_gradient_of_boxes(pfor_input: Any) -> Any:
    """Shapes: gradients [rows, k, h', w', c], images [rows, n, h, w, c], boxes [rows, k, 4], their images [rows, k]."""
    gradients, images, boxes, image_of = (stacked(pfor_input.input(index), pfor_input) for index in range(4))
    rows, n_images, height, width, _ = sizes(images)
    refused = _is_nowhere(boxes, (height, width), sizes(gradients)[2:4])
    place = _image_of_each_box(image_of, n_images, refused=refused)
    (of_boxes,) = same_op(pfor_input, [folded(gradients), folded(images), folded(boxes), place])
    return wrap(unfolded(of_boxes, rows), stacked=True)


def _projective_transform(pfor_input: Any) -> Any:
    """Shapes: images [rows, n, h, w, c], transforms [rows, n or 1, 8] or shared, the rest as of the op."""
    images = stacked(pfor_input.input(0), pfor_input)
    transforms, transforms_are_stacked, _ = pfor_input.input(1)
    rest = [pfor_input.unstacked_input(index) for index in range(2, pfor_input.num_inputs)]
    rows, n, *_ = sizes(images)
    if transforms_are_stacked or transforms.shape[0] != 1:
        # One of all the example's images becomes one of each of them: other examples have others.
        each = stacked(pfor_input.input(1), pfor_input)
        transforms = folded(tf.broadcast_to(each, tf.stack([rows, n, 8])))
    (moved,) = same_op(pfor_input, [folded(images), transforms, *rest])
    return wrap(unfolded(moved, rows), stacked=True)


def _encoded(pfor_input: Any) -> Any:
    """The kernel takes images with any number of dimensions before them."""
    return wrap(same_op(pfor_input, [pfor_input.stacked_input(0)])[0], stacked=True)


CONVERTERS: dict[str, Converter] = {
    "CropAndResize": _crop_and_resize,
    "CropAndResizeGradBoxes": _crop_gradient_of_boxes,
    "CropAndResizeGradImage": _crop_gradient_of_image,
    "DrawBoundingBoxes": batch_folding({0, 1}),
    "DrawBoundingBoxesV2": batch_folding({0, 1}),
    "EncodePng": _encoded,
    "ImageProjectiveTransformV2": _projective_transform,
    "ImageProjectiveTransformV3": _projective_transform,
    "ResizeArea": batch_folding({0}),
    "ResizeBicubic": batch_folding({0}),
    "ResizeBicubicGrad": batch_folding({0, 1}),
    "ResizeBilinear": batch_folding({0}),
    "ResizeBilinearGrad": batch_folding({0, 1}),
    "ResizeNearestNeighbor": batch_folding({0}),
    "ResizeNearestNeighborGrad": batch_folding({0}),
    "ScaleAndTranslate": batch_folding({0}),
    "ScaleAndTranslateGrad": batch_folding({0, 1}),
}

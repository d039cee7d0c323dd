"""Images: decoding, resizing, colours, boxes, windows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from scripts.op_page.call import Call, Each, call, ints, reals

__all__ = ["CALLS", "VARIANTS"]

_IMAGE = reals(1, 4, 4, 3)
_BYTES = ints(4, 4, 3, below=200, dtype=np.uint8)
_SIZE = np.int32([3, 5])
_BOXES = Each(np.float32([[0, 0, 0.5, 0.5], [0.1, 0.1, 0.9, 0.9], [0.5, 0.5, 1, 1]]))
_SCORES = reals(3)
_FILE = Each(np.array(b"not yet", object), tf.string)
_KEYS = np.int32([1, 2])


def _same(names: str, make: Callable[[str], Call]) -> dict[str, Callable[[str], Call]]:
    return dict.fromkeys(names.split(), make)


CALLS: dict[str, Callable[[str], Call]] = {
    **_same("ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor", call(_IMAGE, _SIZE)),
    **_same("ResizeBicubicGrad ResizeBilinearGrad", call(reals(1, 3, 5, 3), _IMAGE)),
    **_same("DecodeBmp DecodeGif DecodeImage DecodeJpeg DecodeJxl DecodePng DecodeWebP ExtractJpegShape", call(_FILE)),
    **_same("AdjustContrastv2 AdjustHue AdjustSaturation", call(reals(4, 4, 3), reals())),
    **_same("ImageProjectiveTransformV2", call(_IMAGE, reals(1, 8), _SIZE, interpolation="BILINEAR")),
    **_same("ImageProjectiveTransformV3", call(_IMAGE, reals(1, 8), _SIZE, 0.0, interpolation="BILINEAR")),
    **_same(
        "ExtractGlimpse ExtractGlimpseV2",
        call(_IMAGE, np.int32([2, 2]), reals(1, 2), uniform_noise=False, noise="zero"),
    ),
    **_same("NonMaxSuppression", call(_BOXES, _SCORES, 2)),
    **_same("NonMaxSuppressionV2", call(_BOXES, _SCORES, 2, 0.5)),
    **_same("NonMaxSuppressionV3", call(_BOXES, _SCORES, 2, 0.5, 0.0)),
    **_same("NonMaxSuppressionV4", call(_BOXES, _SCORES, 2, 0.5, 0.0, pad_to_max_output_size=True)),
    **_same("NonMaxSuppressionV5", call(_BOXES, _SCORES, 2, 0.5, 0.0, 0.0, pad_to_max_output_size=True)),
    **_same("NonMaxSuppressionWithOverlaps", call(reals(3, 3), _SCORES, 2, 0.5, 0.0)),
    "CombinedNonMaxSuppression": call(reals(1, 3, 1, 4), reals(1, 3, 2), 2, 2, 0.5, 0.0),
    "CropAndResize": call(_IMAGE, _BOXES, np.zeros([3], np.int32), _SIZE),
    "CropAndResizeGradBoxes": call(reals(3, 3, 5, 3), _IMAGE, _BOXES, np.zeros([3], np.int32)),
    "CropAndResizeGradImage": call(
        reals(3, 3, 5, 3), _BOXES, np.zeros([3], np.int32), np.int32([1, 4, 4, 3]), T=tf.float32
    ),
    "DecodeAndCropJpeg": call(_FILE, np.int32([0, 0, 2, 2])),
    "DrawBoundingBoxes": call(_IMAGE, reals(1, 2, 4)),
    "DrawBoundingBoxesV2": call(_IMAGE, reals(1, 2, 4), np.float32([[1, 0, 0]])),
    "EncodeJpeg": call(_BYTES),
    "EncodeJpegVariableQuality": call(_BYTES, 90),
    "EncodePng": call(_BYTES),
    "ExtractImagePatches": call(_IMAGE, ksizes=[1, 2, 2, 1], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID"),
    "ExtractVolumePatches": call(
        reals(1, 3, 3, 3, 1), ksizes=[1, 2, 2, 2, 1], strides=[1, 1, 1, 1, 1], padding="VALID"
    ),
    "GenerateBoundingBoxProposals": call(
        reals(1, 2, 2, 1), reals(1, 2, 2, 4), reals(1, 5), reals(2, 2, 4), 0.7, 3, 0.0, post_nms_topn=3
    ),
    "HSVToRGB": call(reals(4, 4, 3)),
    "RGBToHSV": call(reals(4, 4, 3)),
    "ResizeNearestNeighborGrad": call(reals(1, 3, 5, 3), np.int32([4, 4])),
    "SampleDistortedBoundingBox": call(np.int32([4, 4, 3]), reals(1, 1, 4)),
    "SampleDistortedBoundingBoxV2": call(np.int32([4, 4, 3]), reals(1, 1, 4), 0.5),
    "ScaleAndTranslate": call(_IMAGE, _SIZE, reals(2, low=1, high=2), reals(2)),
    "ScaleAndTranslateGrad": call(reals(1, 3, 5, 3), _IMAGE, reals(2, low=1, high=2), reals(2)),
    "StatelessSampleDistortedBoundingBox": call(np.int32([4, 4, 3]), reals(1, 1, 4), 0.5, _KEYS),
}

VARIANTS: dict[str, dict[str, Callable[[str], Call]]] = {
    "ExtractGlimpse": {"filled with noise": call(_IMAGE, np.int32([2, 2]), reals(1, 2))},
    "NonMaxSuppressionV4": {"not padded": call(_BOXES, _SCORES, 2, 0.5, 0.0)},
    "NonMaxSuppressionV5": {"soft": call(_BOXES, _SCORES, 2, 0.5, 0.0, 0.5, pad_to_max_output_size=True)},
}

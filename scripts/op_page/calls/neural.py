"""Layers of networks, with their derivatives; transforms of signals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.op_page.call import Call, Each, call, ints, reals

__all__ = ["CALLS", "VARIANTS"]

_IMAGE = reals(1, 4, 4, 2)
_VOLUME = reals(1, 3, 3, 3, 2)
_CONV: dict[str, Any] = {"strides": [1, 1, 1, 1], "padding": "SAME"}
_CONV3D: dict[str, Any] = {"strides": [1, 1, 1, 1, 1], "padding": "SAME"}
_POOL: dict[str, Any] = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
_POOL3D: dict[str, Any] = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 1, 1, 1, 1], "padding": "VALID"}
_DILATION: dict[str, Any] = {"strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], "padding": "SAME"}
_POOLED = reals(1, 2, 2, 2)
_POOLED3D = reals(1, 2, 2, 2, 2)
_PER_CHANNEL = reals(2)
_IMAGE_SIZES = np.int32([1, 4, 4, 2])
_COMPLEX = reals(2, 4, 4, dtype=np.complex64)
_FLOATS = reals(2, 4, 4)
_NORM = (_IMAGE, _PER_CHANNEL, _PER_CHANNEL, _PER_CHANNEL, _PER_CHANNEL)
_NORM_GRAD = (_IMAGE, _IMAGE, _PER_CHANNEL, _PER_CHANNEL, _PER_CHANNEL)
_EMPTY = np.zeros([0], np.float32)
_STATE = reals(1, 3)
_LSTM = (reals(1, 2), _STATE, _STATE, reals(5, 12), reals(3), reals(3), reals(3), reals(12))
_BLOCK = (np.int64(4), reals(4, 1, 2), _STATE, _STATE, reals(5, 12), reals(3), reals(3), reals(3), reals(12))
_STEPS = reals(4, 1, 3)
_BLOCK_GRAD = (*_BLOCK, *[_STEPS] * 9)
_WHERE = Each(np.int64([[[[0, 1], [4, 5]], [[16, 17], [20, 21]]]]))
_FRACTION: dict[str, Any] = {"pooling_ratio": [1.0, 1.5, 1.5, 1.0], "deterministic": True, "seed": 1, "seed2": 2}
_ROWS = np.int64([0, 2, 4])
_LABELS = (np.int64([[0, 0], [0, 1]]), ints(2), np.int32([3]))


def _same(names: str, make: Callable[[str], Call]) -> dict[str, Callable[[str], Call]]:
    return dict.fromkeys(names.split(), make)


CALLS: dict[str, Callable[[str], Call]] = {
    **_same("AvgPool MaxPool MaxPoolWithArgmax", call(_IMAGE, **_POOL)),
    **_same("AvgPool3D MaxPool3D", call(_VOLUME, **_POOL3D)),
    **_same("MaxPoolGrad", call(_IMAGE, _POOLED, _POOLED, **_POOL)),
    **_same("MaxPoolGradGrad", call(_IMAGE, _POOLED, _IMAGE, **_POOL)),
    **_same("MaxPool3DGrad", call(_VOLUME, _POOLED3D, _POOLED3D, **_POOL3D)),
    **_same("MaxPool3DGradGrad", call(_VOLUME, _POOLED3D, _VOLUME, **_POOL3D)),
    **_same("FFT FFT2D FFT3D IFFT IFFT2D IFFT3D", call(_COMPLEX)),
    **_same("FFTND IFFTND", call(_COMPLEX, np.int32([4, 4]), np.int32([1, 2]))),
    **_same("IRFFT", call(_COMPLEX, np.int32([4]))),
    **_same("IRFFT2D", call(_COMPLEX, np.int32([4, 4]))),
    **_same("IRFFT3D", call(_COMPLEX, np.int32([2, 4, 4]))),
    **_same("IRFFTND", call(_COMPLEX, np.int32([4, 4]), np.int32([1, 2]))),
    **_same("RFFT", call(_FLOATS, np.int32([4]))),
    **_same("RFFT2D", call(_FLOATS, np.int32([4, 4]))),
    **_same("RFFT3D", call(_FLOATS, np.int32([2, 4, 4]))),
    **_same("RFFTND", call(_FLOATS, np.int32([4, 4]), np.int32([1, 2]), Tcomplex=tf.complex64)),
    **_same("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3", call(*_NORM, is_training=False)),
    **_same("FusedBatchNormGrad FusedBatchNormGradV2", call(*_NORM_GRAD)),
    **_same("FusedBatchNormGradV3", call(*_NORM_GRAD, _PER_CHANNEL)),
    **_same("FractionalAvgPool FractionalMaxPool", call(_IMAGE, **_FRACTION)),
    **_same("BlockLSTM BlockLSTMV2", call(*_BLOCK)),
    **_same("BlockLSTMGrad BlockLSTMGradV2", call(*_BLOCK_GRAD, use_peephole=False)),
    "AudioSpectrogram": call(reals(16, 1), window_size=4, stride=2),
    "AvgPool3DGrad": call(np.int32([1, 3, 3, 3, 2]), _POOLED3D, **_POOL3D),
    "AvgPoolGrad": call(_IMAGE_SIZES, _POOLED, **_POOL),
    "BiasAdd": call(reals(2, 3), reals(3)),
    "BiasAddV1": call(reals(2, 3), reals(3)),
    "CTCBeamSearchDecoder": call(reals(4, 1, 3), np.int32([4]), beam_width=2, top_paths=1),
    "CTCGreedyDecoder": call(reals(4, 1, 3), np.int32([4])),
    "CTCLoss": call(reals(4, 1, 6), *_LABELS[:2], np.int32([4])),
    "CTCLossV2": call(reals(4, 1, 6), *_LABELS[:2], np.int32([4])),
    "Conv": call(_IMAGE, reals(2, 2, 2, 3), **_CONV),
    "Conv2D": call(_IMAGE, reals(2, 2, 2, 3), **_CONV),
    "Conv2DBackpropFilter": call(_IMAGE, np.int32([2, 2, 2, 3]), reals(1, 4, 4, 3), **_CONV),
    "Conv2DBackpropFilterV2": call(_IMAGE, reals(2, 2, 2, 3), reals(1, 4, 4, 3), **_CONV),
    "Conv2DBackpropInput": call(_IMAGE_SIZES, reals(2, 2, 2, 3), reals(1, 4, 4, 3), **_CONV),
    "Conv2DBackpropInputV2": call(_IMAGE, reals(2, 2, 2, 3), reals(1, 4, 4, 3), **_CONV),
    "Conv3D": call(_VOLUME, reals(2, 2, 2, 2, 3), **_CONV3D),
    "Conv3DBackpropFilterV2": call(_VOLUME, np.int32([2, 2, 2, 2, 3]), reals(1, 3, 3, 3, 3), **_CONV3D),
    "Conv3DBackpropInputV2": call(np.int32([1, 3, 3, 3, 2]), reals(2, 2, 2, 2, 3), reals(1, 3, 3, 3, 3), **_CONV3D),
    "DepthwiseConv2dNative": call(_IMAGE, reals(2, 2, 2, 1), **_CONV),
    "DepthwiseConv2dNativeBackpropFilter": call(_IMAGE, np.int32([2, 2, 2, 1]), _IMAGE, **_CONV),
    "DepthwiseConv2dNativeBackpropInput": call(_IMAGE_SIZES, reals(2, 2, 2, 1), _IMAGE, **_CONV),
    "Dilation2D": call(_IMAGE, reals(2, 2, 2), **_DILATION),
    "Dilation2DBackpropFilter": call(_IMAGE, reals(2, 2, 2), _IMAGE, **_DILATION),
    "Dilation2DBackpropInput": call(_IMAGE, reals(2, 2, 2), _IMAGE, **_DILATION),
    "FractionalAvgPoolGrad": call(np.int64([1, 4, 4, 2]), _POOLED, _ROWS, _ROWS),
    "FractionalMaxPoolGrad": call(_IMAGE, _POOLED, _POOLED, _ROWS, _ROWS),
    "FusedPadConv2D": call(_IMAGE, np.zeros([4, 2], np.int32), reals(2, 2, 2, 3), mode="REFLECT", **_CONV),
    "FusedResizeAndPadConv2D": call(
        _IMAGE, np.int32([4, 4]), np.zeros([4, 2], np.int32), reals(2, 2, 2, 3), mode="REFLECT", **_CONV
    ),
    "GRUBlockCell": call(reals(1, 2), _STATE, reals(5, 6), reals(5, 3), reals(6), reals(3)),
    "GRUBlockCellGrad": call(
        reals(1, 2), _STATE, reals(5, 6), reals(5, 3), reals(6), reals(3), _STATE, _STATE, _STATE, _STATE
    ),
    "LRN": call(_IMAGE),
    "LRNGrad": call(_IMAGE, _IMAGE, _IMAGE),
    "LSTMBlockCell": call(*_LSTM),
    "LSTMBlockCellGrad": call(*_LSTM, *[_STATE] * 8, use_peephole=False),
    "MaxPoolGradGradV2": call(_IMAGE, _POOLED, _IMAGE, np.int32([1, 2, 2, 1]), np.int32([1, 2, 2, 1]), padding="VALID"),
    "MaxPoolGradGradWithArgmax": call(_IMAGE, _IMAGE, _WHERE, **_POOL),
    "MaxPoolGradV2": call(_IMAGE, _POOLED, _POOLED, np.int32([1, 2, 2, 1]), np.int32([1, 2, 2, 1]), padding="VALID"),
    "MaxPoolGradWithArgmax": call(_IMAGE, _POOLED, _WHERE, **_POOL),
    "MaxPoolV2": call(_IMAGE, np.int32([1, 2, 2, 1]), np.int32([1, 2, 2, 1]), padding="VALID"),
    "Mfcc": call(reals(1, 4, 17), 16000),
    "SparseSoftmaxCrossEntropyWithLogits": call(reals(2, 3), ints(2, below=3)),
}

VARIANTS: dict[str, dict[str, Callable[[str], Call]]] = {
    "Conv2D": {
        "groups": call(_IMAGE, reals(2, 2, 1, 4), **_CONV),
        "dilation": call(_IMAGE, reals(2, 2, 2, 3), dilations=[1, 2, 2, 1], **_CONV),
    },
    "FusedBatchNormV3": {"training": call(*_NORM[:3], _EMPTY, _EMPTY, is_training=True)},
    "FractionalMaxPool": {"random": call(_IMAGE, pooling_ratio=[1.0, 1.5, 1.5, 1.0])},
}

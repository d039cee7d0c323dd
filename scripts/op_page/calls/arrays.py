"""Shapes, slices, indices, joins: ops that move elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from scripts.op_page.call import Call, Each, call, ints, reals

__all__ = ["CALLS", "VARIANTS"]

_INDEX = Each(np.int32([[0, 1], [1, 2]]))
_ONE_OF_TWO = Each(np.int32([[0], [1]]))


def _same(names: str, make: Callable[[str], Call]) -> dict[str, Callable[[str], Call]]:
    return dict.fromkeys(names.split(), make)


CALLS: dict[str, Callable[[str], Call]] = {
    **_same(
        "TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate",
        call(reals(2, 3), _INDEX, reals(2)),
    ),
    **_same("DynamicStitch ParallelDynamicStitch", call([np.int32([0, 2]), np.int32([1])], [reals(2, 2), reals(1, 2)])),
    **_same("MirrorPad", call(reals(2, 3), np.int32([[1, 0], [1, 1]]), mode="REFLECT")),
    **_same("Unique", call(ints(4, below=3))),
    **_same("UniqueWithCounts", call(ints(4, below=3))),
    **_same("UniqueV2 UniqueWithCountsV2", call(ints(4, below=3), np.int32([0]))),
    **_same("SpaceToBatchND", call(reals(1, 4, 4, 1), np.int32([2, 2]), np.zeros([2, 2], np.int32))),
    **_same("BatchToSpaceND", call(reals(4, 2, 2, 1), np.int32([2, 2]), np.zeros([2, 2], np.int32))),
    "BatchToSpace": call(reals(4, 2, 2, 1), np.zeros([2, 2], np.int32), block_size=2),
    "SpaceToBatch": call(reals(1, 4, 4, 1), np.zeros([2, 2], np.int32), block_size=2),
    "Bitcast": call(reals(2, 3), type=tf.int32),
    "BroadcastArgs": call(np.int32([1, 3]), ints(2)),
    "BroadcastGradientArgs": call(np.int32([1, 3]), ints(2)),
    "BroadcastTo": call(reals(1, 3), np.int32([2, 3])),
    "Cast": call(reals(2, 3), DstT=tf.int32),
    "Concat": call(0, [reals(2, 3), reals(2, 3)]),
    "ConcatOffset": call(0, [np.int32([2, 3]), ints(2)]),
    "ConcatV2": call([reals(2, 3), reals(2, 3)], 0),
    "ConjugateTranspose": call(reals(2, 3, dtype=np.complex64), np.int32([1, 0])),
    "Const": call(value=tf.make_tensor_proto(1.0), dtype=tf.float32),
    "DataFormatDimMap": call(ints(2, below=4)),
    "DataFormatVecPermute": call(ints(4)),
    "DepthToSpace": call(reals(1, 2, 2, 4), block_size=2),
    "DynamicPartition": call(reals(4), ints(4, below=2), num_partitions=2),
    "Empty": call(np.int32([2]), dtype=tf.float32, init=True),
    "EnsureShape": call(reals(2, 3), shape=[2, 3]),
    "ExpandDims": call(reals(2, 3), 0),
    "Fill": call(np.int32([2]), reals()),
    "Gather": call(reals(4, 2), ints(3, below=4)),
    "GatherNd": call(reals(2, 3), _INDEX),
    "GatherV2": call(reals(4, 2), ints(3, below=4), 0),
    "IdentityN": call([reals(2), reals(3)]),
    "InvertPermutation": call(ints(4)),
    "ListDiff": call(ints(4), ints(2)),
    "MirrorPadGrad": call(reals(3, 6), np.int32([[1, 0], [1, 1]]), mode="REFLECT"),
    "NoOp": call(),
    "OneHot": call(ints(3), 5, 1.0, 0.0),
    "Pad": call(reals(2, 3), np.int32([[1, 0], [1, 1]])),
    "PadV2": call(reals(2, 3), np.int32([[1, 0], [1, 1]]), 0.0),
    "RandomIndexShuffle": call(2, np.array([1, 2, 3]).astype(np.uint32), 5, rounds=4),
    "Range": call(0, 6, 2),
    "Reshape": call(reals(2, 3), np.int32([3, 2])),
    "Reverse": call(reals(2, 3), np.array([True, False])),
    "ReverseSequence": call(reals(2, 3), ints(2, below=3), seq_dim=1),
    "ReverseV2": call(reals(2, 3), np.int32([0])),
    "Roll": call(reals(2, 3), 1, 1),
    "ScatterNd": call(_INDEX, reals(2), np.int32([2, 3])),
    "Select": call(Each(np.array([True, False])), reals(2), reals(2)),
    "Slice": call(reals(4, 2), np.int32([1, 0]), np.int32([2, 2])),
    "SpaceToDepth": call(reals(1, 4, 4, 1), block_size=2),
    "Split": call(0, reals(4, 2), num_split=2),
    "SplitV": call(reals(2, 2), np.int32([1, 1]), 0, num_split=2),
    "Squeeze": call(reals(1, 3)),
    "StridedSlice": call(reals(4, 2), np.int32([1]), np.int32([3]), np.int32([1])),
    "StridedSliceGrad": call(np.int32([4, 2]), np.int32([1]), np.int32([3]), np.int32([1]), reals(2, 2)),
    "TensorStridedSliceUpdate": call(reals(4, 2), np.int32([1]), np.int32([3]), np.int32([1]), reals(2, 2)),
    "Tile": call(reals(2, 3), np.int32([1, 2])),
    "ToBool": call(reals()),
    "Transpose": call(reals(2, 3), np.int32([1, 0])),
    "Unpack": call(reals(2, 3), num=2),
    "UnravelIndex": call(ints(3), np.int32([2, 3])),
    "Where": call(Each(np.array([True, False, True]))),
}

VARIANTS: dict[str, dict[str, Callable[[str], Call]]] = {
    "GatherV2": {"batch_dims=1": call(reals(2, 3), ints(2, 2, below=3), 1, batch_dims=1)},
    "StridedSlice": {
        "x[i]": call(reals(4, 2), _ONE_OF_TWO.values[1], _ONE_OF_TWO.values[1] + 1, np.int32([1]), shrink_axis_mask=1)
    },
}

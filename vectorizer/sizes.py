"""Whether the size of something in a graph may depend on the values of its inputs."""

from __future__ import annotations

from typing import Any

from vectorizer._pfor import constant_of
from vectorizer.effects import walk_ops

__all__ = ["sizes_vary"]

#: Op types that make as much as an operand says, with the positions of these operands.
_SIZING = {
    "BroadcastTo": (1,),
    "DenseBincount": (1,),
    "Bincount": (1,),
    "EmptyTensorList": (0, 1),
    "Fill": (0,),
    "LinSpace": (2,),
    "MirrorPad": (1,),
    "OneHot": (1,),
    "Pad": (1,),
    "PadV2": (1,),
    "Range": (0, 1, 2),
    "ResizeArea": (1,),
    "ResizeBicubic": (1,),
    "ResizeBilinear": (1,),
    "ResizeNearestNeighbor": (1,),
    "ScatterNd": (2,),
    "SparseToDense": (1,),
    "TensorListReserve": (0, 1),
    "TensorListResize": (1,),
    "Tile": (1,),
    "UnsortedSegmentMax": (2,),
    "UnsortedSegmentMin": (2,),
    "UnsortedSegmentProd": (2,),
    "UnsortedSegmentSum": (2,),
}


def sizes_vary(graph: Any) -> bool:
    """Return True unless every op that makes as much as it is told is told a constant."""
    return any(
        constant_of(op.inputs[position]) is None for op in walk_ops(graph) for position in _SIZING.get(op.type, ())
    )

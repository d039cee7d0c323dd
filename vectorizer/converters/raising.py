"""Which ops can fail on a value, so that a row that should not run them must not.

A row that has left a loop, or takes another branch, computes along with the others and its result is thrown away.
That costs nothing but time, unless the op can raise: then it must be given a value on which it would have run.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from vectorizer._pfor import constant_of

__all__ = ["can_raise", "raising_ops"]

#: Ops that never look at values, or have an answer for all of them. Those of lists have it by their converters.
_TOTAL = frozenset(
    [
        "Abs",
        "Acos",
        "Acosh",
        "Add",
        "AddN",
        "AddV2",
        "All",
        "Any",
        "ApproximateEqual",
        "ArgMax",
        "ArgMin",
        "Asin",
        "Asinh",
        "Atan",
        "Atan2",
        "Atanh",
        "AudioSpectrogram",
        "AvgPool",
        "BatchMatMul",
        "BatchMatMulV2",
        "BatchMatMulV3",
        "Betainc",
        "BiasAdd",
        "Bitcast",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "BroadcastTo",
        "Cast",
        "Ceil",
        "ClipByValue",
        "Complex",
        "ComplexAbs",
        "ConcatV2",
        "Conj",
        "Const",
        "Conv2D",
        "Conv3D",
        "Cos",
        "Cosh",
        "Cumprod",
        "Cumsum",
        "CumulativeLogsumexp",
        "DepthwiseConv2dNative",
        "Diag",
        "DiagPart",
        "Digamma",
        "DivNoNan",
        "Einsum",
        "Elu",
        "Equal",
        "Erf",
        "Erfc",
        "EuclideanNorm",
        "Exp",
        "ExpandDims",
        "Expm1",
        "FakeQuantWithMinMaxArgs",
        "FakeQuantWithMinMaxArgsGradient",
        "FakeQuantWithMinMaxVars",
        "FakeQuantWithMinMaxVarsPerChannel",
        "Floor",
        "FusedBatchNormV3",
        "Greater",
        "GreaterEqual",
        "Identity",
        "IdentityN",
        "Igamma",
        "Igammac",
        "Imag",
        "InTopK",
        "InTopKV2",
        "Inv",
        "InvGrad",
        "Invert",
        "IsFinite",
        "IsInf",
        "IsNan",
        "L2Loss",
        "LeakyRelu",
        "Less",
        "LessEqual",
        "Lgamma",
        "Log",
        "Log1p",
        "LogSoftmax",
        "LogicalAnd",
        "LogicalNot",
        "LogicalOr",
        "MatMul",
        "MatrixBandPart",
        "MatrixDiagV3",
        "Max",
        "MaxPool",
        "Maximum",
        "Mean",
        "Min",
        "Minimum",
        "MirrorPad",
        "Mul",
        "MulNoNan",
        "Neg",
        "NextAfter",
        "NotEqual",
        "NthElement",
        "OneHot",
        "OnesLike",
        "Pack",
        "Polygamma",
        "PopulationCount",
        "Pow",
        "PreventGradient",
        "Prod",
        "RandomGammaGrad",
        "Range",
        "Rank",
        "ReadVariableOp",
        "Real",
        "RealDiv",
        "Reciprocal",
        "Relu",
        "Relu6",
        "Reshape",
        "ReverseV2",
        "Rint",
        "Roll",
        "Round",
        "Rsqrt",
        "Select",
        "SelectV2",
        "Selu",
        "Shape",
        "ShapeN",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Size",
        "Snapshot",
        "Softmax",
        "Softplus",
        "Softsign",
        "Split",
        "SplitV",
        "Sqrt",
        "Square",
        "SquaredDifference",
        "Squeeze",
        "StopGradient",
        "Sub",
        "Sum",
        "Tan",
        "Tanh",
        "TensorListConcatV2",
        "TensorListElementShape",
        "TensorListFromTensor",
        "TensorListGather",
        "TensorListGetItem",
        "TensorListLength",
        "TensorListReserve",
        "TensorListScatterIntoExistingList",
        "TensorListSetItem",
        "TensorListStack",
        "Tile",
        "TopK",
        "TopKV2",
        "Transpose",
        "Unpack",
        "Where",
        "Xdivy",
        "Xlog1py",
        "Xlogy",
        "ZerosLike",
        "Zeta",
    ]
)
#: Ops that fail on an index out of range: the positions of their indices.
_INDEXING = {
    "Bincount": (0,),
    "DenseBincount": (0,),
    "Gather": (1,),
    "GatherNd": (1,),
    "GatherV2": (1,),
    "InvertPermutation": (0,),
    "Pad": (1,),
    "PadV2": (1,),
    "ResourceGather": (1,),
    "ResourceGatherNd": (1,),
    "ReverseSequence": (1,),
    "ScatterNd": (0,),
    "SegmentMax": (1,),
    "SegmentMean": (1,),
    "SegmentMin": (1,),
    "SegmentProd": (1,),
    "SegmentSum": (1,),
    "Slice": (1, 2),
    "SparseSegmentMean": (1, 2),
    "SparseSegmentMeanWithNumSegments": (1, 2),
    "SparseSegmentSqrtN": (1, 2),
    "SparseSegmentSqrtNWithNumSegments": (1, 2),
    "SparseSegmentSum": (1, 2),
    "SparseSegmentSumWithNumSegments": (1, 2),
    "StridedSlice": (1, 2),
    "StridedSliceGrad": (1, 2),
    "TensorScatterAdd": (1,),
    "TensorScatterMax": (1,),
    "TensorScatterMin": (1,),
    "TensorScatterSub": (1,),
    "TensorScatterUpdate": (1,),
    "UnravelIndex": (0,),
    "UnsortedSegmentJoin": (1,),
    "UnsortedSegmentMax": (1,),
    "UnsortedSegmentMin": (1,),
    "UnsortedSegmentProd": (1,),
    "UnsortedSegmentSum": (1,),
}
#: Judged by what they call, which is among the conversions too.
_CALLING = frozenset(
    [
        "Case",
        "If",
        "PartitionedCall",
        "StatefulPartitionedCall",
        "StatelessCase",
        "StatelessIf",
        "StatelessWhile",
        "While",
    ]
)


#: Within these, rows run that an index was not meant for.
_CHOOSING = _CALLING - {"PartitionedCall", "StatefulPartitionedCall"}


def can_raise(conversions: Collection[Any], *, in_branch: bool = False) -> bool:
    """Return True if an op among the conversions may fail because of a row's own value. Unknown ops may."""
    return bool(raising_ops(conversions, in_branch=in_branch))


def raising_ops(conversions: Collection[Any], *, in_branch: bool = False) -> list[Any]:
    """Return the ops that may fail because of a row's own value.

    An index that all rows share is right for the rows of a loop that are still in it. It need not be so in a branch,
    which no row may take, nor in a loop or branch within, where the rows that have left may still be.
    """
    judges_shared = in_branch or any(entry.op.type in _CHOOSING for entry in conversions)
    return [entry.op for entry in conversions if _can_raise(entry.op, entry.stacked, judges_shared=judges_shared)]


def _can_raise(op: Any, stacked: tuple[bool, ...], *, judges_shared: bool) -> bool:
    if op.type == "Pow":
        return bool(op.inputs[0].dtype.is_integer)  # a negative exponent
    if op.type in _INDEXING:
        return any(
            stacked[position] or (judges_shared and constant_of(op.inputs[position]) is None)
            for position in _INDEXING[op.type]
        )
    return op.type not in _TOTAL and op.type not in _CALLING

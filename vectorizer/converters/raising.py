"""Which ops can fail on a value, so that a row that should not run them must not.

A row that has left a loop, or takes another branch, computes along with the others and its result is thrown away.
That costs nothing but time, unless the op can raise: then it must be given a value on which it would have run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["can_raise"]

#: Ops that never look at values, or have an answer for all of them.
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
        "AvgPool",
        "BatchMatMul",
        "BatchMatMulV2",
        "BatchMatMulV3",
        "BiasAdd",
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
        "DepthwiseConv2dNative",
        "DivNoNan",
        "Einsum",
        "Elu",
        "Equal",
        "Erf",
        "Erfc",
        "Exp",
        "ExpandDims",
        "Expm1",
        "FakeQuantWithMinMaxVars",
        "Floor",
        "FusedBatchNormV3",
        "Greater",
        "GreaterEqual",
        "Identity",
        "IdentityN",
        "Imag",
        "Inv",
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
        "OneHot",
        "OnesLike",
        "Pack",
        "Pad",
        "PadV2",
        "Pow",
        "PreventGradient",
        "Prod",
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
        "Tile",
        "TopKV2",
        "Transpose",
        "Unpack",
        "Where",
        "Xdivy",
        "Xlog1py",
        "Xlogy",
        "ZerosLike",
    ]
)
#: Ops that fail on an index out of range: the positions of their indices.
_INDEXING = {
    "Gather": (1,),
    "GatherNd": (1,),
    "GatherV2": (1,),
    "ResourceGather": (1,),
    "ResourceGatherNd": (1,),
    "Slice": (1, 2),
    "StridedSlice": (1, 2),
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


def can_raise(conversions: Iterable[Any]) -> bool:
    """Return True if an op among the conversions may fail because of a row's own value. Unknown ops may."""
    return any(_can_raise(entry.op, entry.stacked) for entry in conversions)


def _can_raise(op: Any, stacked: tuple[bool, ...]) -> bool:
    if op.type == "Pow":
        return bool(op.inputs[0].dtype.is_integer)  # a negative exponent
    if op.type in _INDEXING:
        return any(stacked[position] for position in _INDEXING[op.type])
    return op.type not in _TOTAL and op.type not in _CALLING

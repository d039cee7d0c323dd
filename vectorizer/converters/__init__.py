"""Our converters, one file for each family of ops: op type -> converter.

``converters()`` gathers them; nothing is registered by importing, and TensorFlow's own registry is not changed.
"""

from __future__ import annotations

from vectorizer._pfor import Converter
from vectorizer.converters import (
    bias,
    branches,
    colors,
    convolution,
    counting,
    depthwise,
    elementwise,
    gather,
    indexing,
    linear_algebra,
    lists,
    loops,
    matmul,
    mirror_pad,
    normalization,
    padding,
    resize,
    scatter,
    segments,
    sequences,
    shapes,
    slicing,
    strings,
    suppression,
    windows,
)

__all__ = ["converters"]


def converters() -> dict[str, Converter]:
    """Return every converter that replaces or adds to pfor's own, by op type."""
    return {
        **bias.CONVERTERS,
        **branches.CONVERTERS,
        **colors.CONVERTERS,
        **convolution.CONVERTERS,
        **counting.CONVERTERS,
        **depthwise.CONVERTERS,
        **elementwise.CONVERTERS,
        **gather.CONVERTERS,
        **indexing.CONVERTERS,
        **linear_algebra.CONVERTERS,
        **lists.CONVERTERS,
        **loops.CONVERTERS,
        **matmul.CONVERTERS,
        **mirror_pad.CONVERTERS,
        **normalization.CONVERTERS,
        **padding.CONVERTERS,
        **resize.CONVERTERS,
        **scatter.CONVERTERS,
        **segments.CONVERTERS,
        **sequences.CONVERTERS,
        **shapes.CONVERTERS,
        **slicing.CONVERTERS,
        **strings.CONVERTERS,
        **suppression.CONVERTERS,
        **windows.CONVERTERS,
    }

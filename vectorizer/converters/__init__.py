"""Our converters, one file for each family of ops: op type -> converter.

``converters()`` gathers them; nothing is registered by importing, and TensorFlow's own registry is not changed.
"""

from __future__ import annotations

from typing import Any

from vectorizer._pfor import Converter, NotForThese, stock_registry
from vectorizer.converters import (
    asserts,
    bias,
    branches,
    colors,
    convolution,
    counting,
    depthwise,
    elementwise,
    former_names,
    gather,
    indexing,
    linear_algebra,
    lists,
    loops,
    matmul,
    mirror_pad,
    normalization,
    optionals,
    padding,
    pooling,
    quantization,
    random_choices,
    random_streams,
    recurrent,
    resize,
    scatter,
    segments,
    sequences,
    shapes,
    slice_update,
    slicing,
    sparse,
    stacks,
    strings,
    sums,
    suppression,
    windows,
)
from vectorizer.converters.differing import differing_sources

__all__ = ["converters"]


def converters() -> dict[str, Converter]:
    """Return every converter that replaces or adds to pfor's own, by op type."""
    fixed = {
        **asserts.CONVERTERS,
        **bias.CONVERTERS,
        **branches.CONVERTERS,
        **colors.CONVERTERS,
        **convolution.CONVERTERS,
        **counting.CONVERTERS,
        **depthwise.CONVERTERS,
        **elementwise.CONVERTERS,
        **former_names.CONVERTERS,
        **gather.CONVERTERS,
        **indexing.CONVERTERS,
        **linear_algebra.CONVERTERS,
        **lists.CONVERTERS,
        **loops.CONVERTERS,
        **matmul.CONVERTERS,
        **mirror_pad.CONVERTERS,
        **normalization.CONVERTERS,
        **optionals.CONVERTERS,
        **padding.CONVERTERS,
        **pooling.CONVERTERS,
        **quantization.CONVERTERS,
        **random_choices.CONVERTERS,
        **random_streams.CONVERTERS,
        **recurrent.CONVERTERS,
        **resize.CONVERTERS,
        **scatter.CONVERTERS,
        **segments.CONVERTERS,
        **sequences.CONVERTERS,
        **shapes.CONVERTERS,
        **slice_update.CONVERTERS,
        **slicing.CONVERTERS,
        **sparse.CONVERTERS,
        **stacks.CONVERTERS,
        **strings.CONVERTERS,
        **sums.CONVERTERS,
        **suppression.CONVERTERS,
        **windows.CONVERTERS,
    }
    stock = stock_registry()
    return {
        **fixed,
        **{
            op_type: _first_of(fixed.get(op_type, stock.get(op_type)), source)
            for op_type, source in differing_sources().items()
        },
    }


def _first_of(fixed: Converter | None, source: Converter) -> Converter:
    """Return a converter that gives a result of one size for all rows where it can, else one of differing length."""
    if fixed is None:
        return source

    def convert(pfor_input: Any) -> Any:
        try:
            return fixed(pfor_input)
        except NotForThese:
            return source(pfor_input)

    return convert

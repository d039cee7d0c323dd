"""Padding with what lies beside the edge: MirrorPad and its derivative.

The kernels stop at five dimensions. Where the example's first dimension is not padded, which holds for batches of
images, the rows are merged into it and take no dimension of their own.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, wrap
from vectorizer.converters.constants import known_operand
from vectorizer.converters.folding import folded, sizes, unfolded

__all__ = ["CONVERTERS"]

_MOST_DIMENSIONS = 5


def _mirror_pad(pfor_input: Any) -> Any:
    value = pfor_input.stacked_input(0)
    paddings = pfor_input.unstacked_input(1)
    known = known_operand(pfor_input, 1)
    if known is not None and len(known) and not known[0].any():
        (padded,) = same_op(pfor_input, [folded(value), paddings])
        return wrap(unfolded(padded, sizes(value)[0]), stacked=True)
    if len(value.shape) > _MOST_DIMENSIONS:
        not_for_these(f"its kernel takes {_MOST_DIMENSIONS} dimensions, and the rows would be the sixth")
    (padded,) = same_op(pfor_input, [value, tf.pad(paddings, [[1, 0], [0, 0]])])
    return wrap(padded, stacked=True)


CONVERTERS: dict[str, Converter] = {"MirrorPad": _mirror_pad, "MirrorPadGrad": _mirror_pad}

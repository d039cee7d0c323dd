"""Categorical draws whose logits or seed differ from row to row.

The kernel sums probabilities in double precision and looks each uniform number up in the sums: here by counting the
sums that are not above it.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, stacked, wrap
from vectorizer.converters.constants import known_operand
from vectorizer.converters.random_streams import Streams
from vectorizer.converters.random_transforms import PER_BLOCK, uniforms

__all__ = ["CONVERTERS"]

#: The kernel gives a part of the distributions to each thread from this cost on, and the parts draw other numbers.
_COST_OF_TWO_SHARDS = 20_000


def _multinomial(pfor_input: Any) -> Any:
    logits, _, seed = pfor_input.inputs
    shape, n = pfor_input.op.inputs[0].shape, known_operand(pfor_input, 1)
    if n is None or not shape.is_fully_defined():
        not_for_these(f"the number of samples is no constant, or logits of shape {shape} have no known size")
    n = int(n)
    n_choices, n_classes = shape
    cost = n_choices * 50 * (n * math.log2(n_classes) + n_classes)
    if n_choices > 1 and cost >= _COST_OF_TWO_SHARDS:
        not_for_these("what the kernel draws for so many distributions at once depends on the number of threads")
    own = stacked(seed, pfor_input)
    per_block = PER_BLOCK[tf.float64]
    blocks = Streams.of_seed(own).blocks(tf.range(-(-n_choices * n // per_block), dtype=tf.int64))
    uniform = tf.reshape(uniforms(blocks, tf.float64), [own.shape[0] or tf.shape(own)[0], -1])[:, : n_choices * n]
    uniform = tf.reshape(uniform, [-1, n_choices, n])
    sums = _running_sums(tf.cast(stacked(logits, pfor_input), tf.float64), lowest=pfor_input.op.inputs[0].dtype.min)
    found = uniform * sums[..., -1:]
    drawn = tf.reduce_sum(tf.cast(sums[:, :, None, :] <= found[..., None], tf.int32), axis=-1)
    return wrap(tf.cast(drawn, pfor_input.outputs[0].dtype), stacked=True)


def _running_sums(logits: tf.Tensor, *, lowest: Any) -> tf.Tensor:
    """Shapes: [rows, choices, classes]. Classes of infinite logits have no probability."""
    finite = tf.math.is_finite(logits)
    largest = tf.reduce_max(tf.where(finite, logits, tf.constant(float(lowest), tf.float64)), axis=-1, keepdims=True)
    likely = tf.where(finite, tf.exp(logits - largest), tf.zeros_like(logits))
    return tf.cumsum(likely, axis=-1)


CONVERTERS: dict[str, Converter] = {"StatelessMultinomial": _multinomial}

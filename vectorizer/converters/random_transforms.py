"""From the words of a random stream to numbers of a distribution, bit for bit as TensorFlow's kernels do.

A stream is blocks of four words. A 32-bit number takes one word, a 64-bit one two; normals come in pairs.

Source: Box, Muller, "A note on the generation of random normal deviates", 1958; the use of the words is that of
TensorFlow's ``random_distributions.h``.
"""

from __future__ import annotations

import math

import tensorflow as tf

from vectorizer.converters.folding import sizes
from vectorizer.converters.philox import as_words, swapped

__all__ = ["PER_BLOCK", "integers", "integers_between", "normals", "uniforms"]

#: How many numbers of a dtype a block gives.
PER_BLOCK = {
    tf.bfloat16: 4,
    tf.float16: 4,
    tf.float32: 4,
    tf.float64: 2,
    tf.int32: 4,
    tf.int64: 2,
    tf.uint32: 4,
    tf.uint64: 2,
}
#: dtype -> the integer of its size, the bits of 1.0 in it, the mask of its fraction.
_LAYOUT: dict[tf.DType, tuple[tf.DType, int, int]] = {
    tf.bfloat16: (tf.uint16, 127 << 7, (1 << 7) - 1),
    tf.float16: (tf.uint16, 15 << 10, (1 << 10) - 1),
    tf.float32: (tf.uint32, 127 << 23, (1 << 23) - 1),
    tf.float64: (tf.uint64, 1023 << 52, (1 << 52) - 1),
}
#: The logarithm is taken of nothing smaller.
_LEAST = 1e-7


def uniforms(blocks: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return numbers of [0, 1): random fractions of [1, 2), less 1. Shapes: uint64 [*s, 2] -> [*s, PER_BLOCK]."""
    integer, one, fraction = _LAYOUT[dtype]
    bits = blocks if dtype == tf.float64 else as_words(blocks)
    bits = tf.bitwise.bitwise_and(bits, tf.constant(fraction, bits.dtype))
    bits = tf.bitwise.bitwise_or(tf.cast(bits, integer), tf.constant(one, integer))
    return tf.bitcast(bits, dtype) - tf.constant(1, dtype)


def integers(blocks: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return integers of the whole range of their dtype. Shapes: uint64 [*s, 2] -> [*s, PER_BLOCK]."""
    bits = as_words(blocks) if dtype.size == 4 else swapped(blocks)
    return tf.bitcast(bits, dtype)


def integers_between(blocks: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Return integers of [low, high). Shapes: uint64 [*s, 2], low and high broadcast -> [*s, PER_BLOCK]."""
    unsigned = tf.uint32 if low.dtype.size == 4 else tf.uint64
    bits = integers(blocks, unsigned)
    span = tf.bitcast(high, unsigned) - tf.bitcast(low, unsigned)
    # A range that is empty is refused elsewhere; a division by zero here would say less.
    span = tf.where(tf.equal(span, 0), tf.ones_like(span), span)
    return low + tf.bitcast(tf.math.floormod(bits, span), low.dtype)


def normals(blocks: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return standard normal numbers. Shapes: uint64 [*s, 2] -> [*s, PER_BLOCK]."""
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    uniform = uniforms(blocks, wide)
    radius = _radius(tf.maximum(uniform[..., 0::2], tf.constant(_LEAST, wide)))
    sine, cosine = _waves(uniform[..., 1::2])
    pairs = tf.stack([sine * radius, cosine * radius], axis=-1)
    return tf.cast(_joined(pairs), dtype)


def _radius(uniform: tf.Tensor) -> tf.Tensor:
    # Through one rounding of a double: neither the place in a vector register nor the compiler makes a difference.
    logarithm = tf.cast(tf.math.log(tf.cast(uniform, tf.float64)), uniform.dtype)
    return tf.sqrt(tf.constant(-2, uniform.dtype) * logarithm)


def _waves(uniform: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    angle = tf.cast(tf.cast(tf.cast(uniform, tf.float64) * (2 * math.pi), uniform.dtype), tf.float64)
    return tf.cast(tf.sin(angle), uniform.dtype), tf.cast(tf.cos(angle), uniform.dtype)


def _joined(pairs: tf.Tensor) -> tf.Tensor:
    """Shapes: [*s, n, 2] -> [*s, 2 n]."""
    *outer, n, _ = sizes(pairs)
    return tf.reshape(pairs, [*outer, n * 2])

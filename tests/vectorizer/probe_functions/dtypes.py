"""Every kind of number, and text."""

from __future__ import annotations

import tensorflow as tf

from tests.vectorizer.oracle import spec
from tests.vectorizer.probe_functions.probe import ProbeFunction

__all__ = ["PROBES"]


def polynomial(x):
    return x * x + x


def truth(x):
    return tf.logical_not(x), tf.reduce_any(x), tf.where(x, 1, 2)


def pixels(x):
    scaled = tf.image.convert_image_dtype(x, tf.float32)
    return scaled, tf.image.rgb_to_grayscale(x), tf.bitwise.bitwise_xor(x, tf.constant(1, tf.uint8))


def spectrum(x):
    return tf.signal.fft(x), tf.math.conj(x), tf.abs(x)


def bits(x):
    return tf.bitcast(x, tf.int32)


def whole_part(x):
    return tf.cast(tf.clip_by_value(tf.where(tf.math.is_nan(x), 0.0, x), -9.0, 9.0), tf.int32)


def text(x):
    return tf.strings.lower(x), tf.strings.length(x), tf.strings.join([x, b"!"])


def hashed(x):
    return tf.strings.to_hash_bucket_fast(x, 10)


def number_as_text(x):
    return tf.strings.as_string(x)


def _of(function, *shape, dtype):
    return ProbeFunction(function=function, inputs={"x": spec(*shape, dtype=dtype)})


def _renamed(dtype):
    def power(x):
        return polynomial(x)

    power.__name__ = f"polynomial_{dtype.name}"
    return _of(power, 3, dtype=dtype)


PROBES = [
    *map(_renamed, (tf.int8, tf.int64, tf.float16, tf.bfloat16, tf.float64)),
    _of(truth, 3, dtype=tf.bool),
    _of(pixels, 2, 2, 3, dtype=tf.uint8),
    _of(spectrum, 4, dtype=tf.complex64),
    _of(bits, 3, dtype=tf.float32),
    _of(whole_part, 3, dtype=tf.float32),
    _of(text, 2, dtype=tf.string),
    _of(hashed, 2, dtype=tf.string),
    _of(number_as_text, 2, dtype=tf.int32),
]

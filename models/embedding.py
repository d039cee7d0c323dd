"""Text to vector: the mean of its words' embeddings, of length 1, for any number of words up to 128.

What is worth copying here:

- ``tf.nn.embedding_lookup`` on a variable is fine: over many examples the table is read once, not once per example.
- The mean must leave the padding out: positions from ``length`` on get weight 0, and the sum is divided by the true
  number of words. No words at all give the zero vector, not a division by zero.
- Any token is valid. Ids are taken modulo the table's size (the hashing trick), so no caller can ask for a row that
  doesn't exist, and no vocabulary has to be kept in step with its callers.

The table is random, with a fixed seed: words are told apart, but nothing was learnt about what they mean.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["INPUTS", "SPEC", "examples", "initial_table", "predict", "table", "tokenize"]

ROWS = 20_000
DIMENSIONS = 128
MAX_TOKENS = 128

INPUTS = {"tokens": tf.TensorSpec([None], tf.int32), "length": tf.TensorSpec([], tf.int32)}
SPEC = {"inputs": {"tokens": {"max": MAX_TOKENS, "length_input": "length"}}}


def predict(tokens: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the embedding of one bag of words.

    Shapes: tokens [n], any integers; length scalar, at most n; embedding [128], of length 1 (or 0 for no words).
    Source: K. Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", 2009.
    """
    rows = tf.nn.embedding_lookup(table(), tf.math.floormod(tokens, ROWS))
    counted = tf.cast(tf.sequence_mask(length, tf.shape(tokens)[0]), tf.float32)
    mean = tf.tensordot(counted, rows, 1) / tf.cast(tf.maximum(length, 1), tf.float32)
    # The bound keeps the zero vector zero: words can't cancel out to anything near it by chance.
    return {"embedding": mean * tf.math.rsqrt(tf.maximum(tf.reduce_sum(mean * mean), 1e-12))}


def initial_table() -> np.ndarray:
    """Return the table's values. Shapes: float32 [20000, 128]."""
    return np.random.default_rng(seed=50).standard_normal((ROWS, DIMENSIONS), np.float32)


@functools.cache
def table() -> tf.Variable:
    """Return the table, made once and outside any trace."""
    with tf.init_scope():
        return tf.Variable(initial_table(), name="table")


def tokenize(text: str) -> np.ndarray:
    """Return the token of each of the first 128 words. Shapes: int32 [n]."""
    words = re.findall(r"\w+", text.lower())[:MAX_TOKENS]
    return np.array([zlib.crc32(word.encode()) & 0x7FFF_FFFF for word in words], np.int32)


def examples() -> Iterator[dict[str, Any]]:
    """Yield the paragraphs of the descriptions that come with scikit-learn's data sets: real text, 1 to 128 words."""
    from sklearn import datasets

    loaders = (
        datasets.load_breast_cancer,
        datasets.load_diabetes,
        datasets.load_digits,
        datasets.load_iris,
        datasets.load_linnerud,
        datasets.load_wine,
    )
    for load in loaders:
        for paragraph in re.split(r"\n\s*\n", load().DESCR):
            tokens = tokenize(paragraph)
            if len(tokens):
                yield {"tokens": tokens, "length": np.int32(len(tokens))}

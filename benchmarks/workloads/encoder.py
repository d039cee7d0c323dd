"""A transformer encoder: two layers of four heads over 32 tokens, the padding masked.

Source: A. Vaswani et al., "Attention Is All You Need", 2017, with the norm before each part.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.workloads.workload import Workload

__all__ = ["ENCODER"]

TOKENS = 32
VOCABULARY = 1_000
WIDTH = 128
HEADS = 4
PER_HEAD = WIDTH // HEADS
INNER = 512
LAYERS = 2
#: Added to the score of a token that must not be attended to.
NEVER = -1e9


def _initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed=80)

    def dense(n_in: int, n_out: int) -> np.ndarray:
        return rng.normal(0, n_in**-0.5, (n_in, n_out)).astype(np.float32)

    values = {
        "words": rng.normal(0, 1, (VOCABULARY, WIDTH)).astype(np.float32),
        "places": rng.normal(0, 0.5, (TOKENS, WIDTH)).astype(np.float32),
        "head": dense(WIDTH, 8),
    }
    for layer in range(LAYERS):
        values |= {
            f"scale_a{layer}": np.ones(WIDTH, np.float32),
            f"shift_a{layer}": np.zeros(WIDTH, np.float32),
            f"qkv{layer}": dense(WIDTH, 3 * WIDTH),
            f"out{layer}": dense(WIDTH, WIDTH),
            f"scale_b{layer}": np.ones(WIDTH, np.float32),
            f"shift_b{layer}": np.zeros(WIDTH, np.float32),
            f"up{layer}": dense(WIDTH, INNER),
            f"up_bias{layer}": np.zeros(INNER, np.float32),
            f"down{layer}": dense(INNER, WIDTH),
            f"down_bias{layer}": np.zeros(WIDTH, np.float32),
        }
    return values


@functools.cache
def _weights() -> dict[str, tf.Variable]:
    with tf.init_scope():
        return {name: tf.Variable(value, name=name) for name, value in _initial().items()}


def _norm(x: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    mean = tf.reduce_mean(x, -1, keepdims=True)
    centred = x - mean
    variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
    return centred * tf.math.rsqrt(variance + 1e-6) * scale + shift


def _predict(tokens: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: tokens int32 [32]; length scalar, of them; features [8]."""
    w = _weights()
    is_word = tf.sequence_mask(length, TOKENS)
    mask = tf.where(is_word, 0.0, NEVER)
    x = tf.gather(w["words"], tokens) + w["places"]
    for layer in range(LAYERS):
        normed = _norm(x, w[f"scale_a{layer}"], w[f"shift_a{layer}"])
        qkv = tf.transpose(tf.reshape(normed @ w[f"qkv{layer}"], [TOKENS, 3, HEADS, PER_HEAD]), [1, 2, 0, 3])
        scores = tf.matmul(qkv[0], qkv[1], transpose_b=True) * PER_HEAD**-0.5 + mask
        mixed = tf.transpose(tf.nn.softmax(scores) @ qkv[2], [1, 0, 2])
        x += tf.reshape(mixed, [TOKENS, WIDTH]) @ w[f"out{layer}"]
        normed = _norm(x, w[f"scale_b{layer}"], w[f"shift_b{layer}"])
        inner = tf.nn.gelu(normed @ w[f"up{layer}"] + w[f"up_bias{layer}"], approximate=True)
        x += inner @ w[f"down{layer}"] + w[f"down_bias{layer}"]
    counted = tf.cast(is_word, tf.float32)
    mean = tf.tensordot(counted, x, 1) / tf.reduce_sum(counted)
    return {"features": tf.tanh(tf.tensordot(mean, w["head"], 1))}


def _by_hand(tokens: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
    """Dense layers see all tokens of all rows as one matrix."""
    w = _weights()
    n_rows = tokens.shape[0]
    is_word = tf.sequence_mask(length, TOKENS)
    mask = tf.where(is_word, 0.0, NEVER)[:, tf.newaxis, tf.newaxis]
    x = tf.reshape(tf.gather(w["words"], tokens) + w["places"], [-1, WIDTH])
    for layer in range(LAYERS):
        normed = _norm(x, w[f"scale_a{layer}"], w[f"shift_a{layer}"])
        parts = tf.reshape(normed @ w[f"qkv{layer}"], [n_rows, TOKENS, 3, HEADS, PER_HEAD])
        q, k, v = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        scores = tf.matmul(q, k, transpose_b=True) * PER_HEAD**-0.5 + mask
        mixed = tf.transpose(tf.nn.softmax(scores) @ v, [0, 2, 1, 3])
        x += tf.reshape(mixed, [-1, WIDTH]) @ w[f"out{layer}"]
        normed = _norm(x, w[f"scale_b{layer}"], w[f"shift_b{layer}"])
        inner = tf.nn.gelu(tf.nn.bias_add(normed @ w[f"up{layer}"], w[f"up_bias{layer}"]), approximate=True)
        x += tf.nn.bias_add(inner @ w[f"down{layer}"], w[f"down_bias{layer}"])
    counted = tf.cast(is_word, tf.float32)
    total = tf.squeeze(counted[:, tf.newaxis] @ tf.reshape(x, [n_rows, TOKENS, WIDTH]), 1)
    return {"features": tf.tanh(total / tf.reduce_sum(counted, 1, keepdims=True) @ w["head"])}


def _examples() -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed=81)
    for _ in range(1_000):
        length = int(rng.integers(1, TOKENS + 1))
        tokens = np.zeros(TOKENS, np.int32)
        tokens[:length] = rng.integers(1, VOCABULARY, length)
        yield {"tokens": tokens, "length": np.int32(length)}


ENCODER = Workload(
    name="encoder",
    inputs={"tokens": tf.TensorSpec([TOKENS], tf.int32), "length": tf.TensorSpec([], tf.int32)},
    predict=_predict,
    by_hand=_by_hand,
    examples=_examples,
    weights=_initial,
)

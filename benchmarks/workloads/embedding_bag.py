"""The mean of a bag of hashed words' embeddings."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.workloads.workload import Workload
from models import embedding
from vectorizer import Length

__all__ = ["EMBEDDING_BAG"]


def _by_hand(tokens: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
    rows = tf.nn.embedding_lookup(embedding.table(), tf.math.floormod(tokens, embedding.ROWS))
    counted = tf.cast(tf.sequence_mask(length, tokens.shape[1]), tf.float32)
    total = tf.squeeze(counted[:, tf.newaxis] @ rows, 1)
    mean = total / tf.cast(tf.maximum(length, 1), tf.float32)[:, tf.newaxis]
    square = tf.reduce_sum(mean * mean, axis=1, keepdims=True)
    return {"embedding": mean * tf.math.rsqrt(tf.maximum(square, 1e-12))}


EMBEDDING_BAG = Workload(
    name="embedding_bag",
    inputs=embedding.INPUTS,
    predict=embedding.predict,
    by_hand=_by_hand,
    examples=embedding.examples,
    weights=lambda: {"table": embedding.initial_table()},
    lengths={"tokens": Length(max=embedding.MAX_TOKENS, buckets=(embedding.MAX_TOKENS,), length_input="length")},
)

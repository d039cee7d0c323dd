"""Recurrent cells and sequences of one op, with their weights shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, check_refuses_alike
from tests.vectorizer.oracle import spec
from vectorizer import vectorize

RNG = np.random.default_rng(11)
RAW = tf.raw_ops
X = RNG.normal(size=(8, 5, 2, 3)).astype(np.float32)
STATE = RNG.normal(size=(8, 2, 4)).astype(np.float32)


def weights(*shape: int) -> tf.Tensor:
    return tf.constant(RNG.normal(size=shape).astype(np.float32))


PEEPHOLES = {name: weights(4) for name in ("wci", "wcf", "wco")}
LSTM: dict[str, Any] = {"w": weights(7, 16), "b": weights(16), **PEEPHOLES, "use_peephole": True}
GRU = {"w_ru": weights(7, 8), "w_c": weights(7, 4), "b_ru": weights(8), "b_c": weights(4)}


def test_cells() -> None:
    def predict(x: tf.Tensor, state: tf.Tensor) -> list[tf.Tensor]:
        long_short = RAW.LSTMBlockCell(x=x[0], cs_prev=state, h_prev=tf.tanh(state), forget_bias=1.0, **LSTM)
        return [*long_short, *RAW.GRUBlockCell(x=x[0], h_prev=state, **GRU)]

    check_loopless(predict, {"x": X, "state": STATE})


def test_sequences() -> None:
    def predict(x: tf.Tensor, state: tf.Tensor) -> list[tf.Tensor]:
        given = {"x": x, "cs_prev": state, "h_prev": tf.tanh(state), **LSTM}
        # Past seq_len_max the kernels leave their results as they find them.
        old = RAW.BlockLSTM(seq_len_max=5, **given)
        return [*old, RAW.BlockLSTMV2(seq_len_max=4, **given).h[:4]]

    check_loopless(predict, {"x": X, "state": STATE})
    check_loopless(lambda x: predict(x, tf.constant(STATE[0])), {"x": X}, buckets=(7,))
    check_loopless(lambda state: predict(tf.constant(X[0]), state), {"state": STATE}, buckets=(7,))


PLACES = np.int64([[0, 0], [0, 1], [1, 0]])


def test_loss_of_aligned_sequences() -> None:
    def loss(x: Any, labels: Any, n: Any) -> list[tf.Tensor]:
        labels, n = tf.math.floormod(labels, 4), 3 + tf.math.floormod(n, 3)
        made = RAW.CTCLoss(inputs=x, labels_indices=PLACES, labels_values=labels, sequence_length=n)
        return [made.loss, made.gradient]

    logits = RNG.normal(size=(8, 5, 2, 5)).astype(np.float32)
    labels = np.stack([RNG.permutation(4)[:3] for _ in range(8)]).astype(np.int32)
    lengths = RNG.integers(3, 6, size=(8, 2)).astype(np.int32)
    check_loopless(loss, {"x": logits, "labels": labels, "n": lengths}, rtol=1e-4)
    check_loopless(
        lambda x: loss(x, tf.constant(labels[0]), tf.constant(lengths[0])), {"x": logits}, rtol=1e-4, buckets=(7,)
    )


def test_label_of_a_sequence_out_of_range_fails_in_its_row() -> None:
    def predict(place: tf.Tensor) -> tf.Tensor:
        logits = tf.zeros([5, 1, 5])
        return RAW.CTCLoss(inputs=logits, labels_indices=place, labels_values=[1], sequence_length=[5]).loss

    places = np.int64([[[0, 0]], [[0, 0]], [[1, 0]], [[-1, 0]]])
    vectorized = vectorize(
        predict, inputs={"place": spec(1, 2, dtype=tf.int64)}, buckets=(4,), examples=[{"place": places[0]}]
    )
    check_refuses_alike(predict, vectorized, {"place": places}, first_bad=2)

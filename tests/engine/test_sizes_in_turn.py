"""Batches of all sizes over the same staging arrays: what the last one left there shows nowhere."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from server.batching import Batch, CostTable, Group, Item
from server.engine import LoadedModel
from server.protocol import Rows
from server.signature import ModelSignature, TensorSignature
from tests.engine.conftest import WriteArtifact

SIGNATURE = ModelSignature(
    inputs=(TensorSignature(name="x", dtype="float32", shape=(2,)),),
    outputs=(TensorSignature(name="y", dtype="float32", shape=(2,)),),
)
BUCKETS = (1, 2, 4, 8, 16)


def tripled(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"y": x * 3.0}


def test_sizes_10_2_10_in_turn_give_rows_of_an_earlier_batch(write_artifact: WriteArtifact) -> None:
    model = LoadedModel.load(write_artifact(tripled, SIGNATURE, buckets=BUCKETS))
    runner = model.groups["predict", ()]
    group = Group("test", CostTable(runner.costs_s), label="model 'small'")
    up = [n for bucket in BUCKETS for n in (max(1, bucket // 2 + 1), bucket)]
    kept = []
    for turn, n in enumerate([10, 2, 10, *up, *reversed(up)]):
        values = np.arange(2 * n, dtype=np.float32).reshape(n, 2) + 1_000.0 * turn
        item = Item(group, n, Rows(n, (values,)), arrived_s=0.0, deadline_s=None, on_done=lambda item: None)
        bucket = min(size for size in BUCKETS if size >= n)
        batch = Batch(1, group, bucket, [(item, 0, n)], n_rows=n, reason="test", dispatched_s=0.0, predicted_s=math.nan)
        (answer,) = runner.run(batch)
        kept.append((answer[:n], 3.0 * values))
    # At the end: an answer that is read late is not the next batch's either.
    for answer, expected in kept:
        np.testing.assert_array_equal(answer, expected)
    model.close()

"""Rows are cut to the sizes that the graph tells for each of them."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from server.batching import Batch, CostTable, ExampleFailed, Group, Item
from server.engine import LoadedModel
from server.engine.answers import Answers
from server.protocol import Rows
from server.signature import ModelSignature, TensorSignature
from tests.engine.conftest import WriteArtifact

SIGNATURE = ModelSignature(
    inputs=(TensorSignature(name="n", dtype="int32", shape=()),),
    outputs=(
        TensorSignature(name="ones", dtype="int32", shape=("ones__length_0", 2)),
        TensorSignature(name="n", dtype="int32", shape=()),
    ),
)


def ones(n: tf.Tensor) -> dict[str, tf.Tensor]:
    with tf.control_dependencies([tf.debugging.assert_less(n, 9)]):
        longest = tf.reduce_max(n)
    padded = tf.where(tf.range(longest)[tf.newaxis, :, tf.newaxis] < n[:, tf.newaxis, tf.newaxis], [1, 1], [-9, -9])
    return {"ones": padded, "n": tf.identity(n), "ones__length_0": tf.identity(n)}


def test_names_of_the_graphs_answers_end_with_those_that_tell_sizes() -> None:
    assert Answers(SIGNATURE).names == ["ones", "n", "ones__length_0"]
    assert ModelSignature.from_json(SIGNATURE.to_json()) == SIGNATURE


def test_padding_does_not_leave_the_engine(write_artifact: WriteArtifact) -> None:
    model = LoadedModel.load(write_artifact(ones, SIGNATURE, buckets=(1, 4)))
    runner = model.groups["predict", ()]
    group = Group("test", CostTable(runner.costs_s), label="model 'small'")

    def batch(*values: int) -> Batch:
        rows = Rows(len(values), (np.array(values, np.int32),))
        item = Item(group, rows.n, rows, arrived_s=0.0, deadline_s=None, on_done=lambda item: None)
        return Batch(
            1, group, 4, [(item, 0, rows.n)], n_rows=rows.n, reason="test", dispatched_s=0.0, predicted_s=math.nan
        )

    made, n = runner.run(batch(2, 0, 5))
    assert [row.tolist() for row in made] == [[[1, 1]] * 2, [], [[1, 1]] * 5]
    assert n[:3].tolist() == [2, 0, 5]
    # Rows that fail alone leave the others theirs, from runs of different padded sizes.
    (made, _), failed = runner.run_isolated(batch(3, 11, 1, 8), ExampleFailed("the batch failed"))
    assert failed.errors.keys() == {1}
    assert [len(made[row]) for row in (0, 2, 3)] == [3, 1, 8]

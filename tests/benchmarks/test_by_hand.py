"""What the vectorizer is measured against computes the same: a bar that answers otherwise would be no bar."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from benchmarks.by_hand import BY_HAND
from benchmarks.vectorizer import batch_of, executor_for, report_line, verdicts

N_ROWS = 7


@pytest.mark.parametrize("name", BY_HAND)
def test_a_model_batched_by_hand_answers_as_its_per_example_function(name: str) -> None:
    import tensorflow as tf

    module: Any = importlib.import_module(f"models.{name}")
    batch = batch_of(module, N_ROWS)
    together = BY_HAND[name](**{key: tf.constant(value) for key, value in batch.items()})
    one = tf.function(module.predict)
    for row in range(N_ROWS):
        alone = one(**{key: tf.constant(value[row]) for key, value in batch.items()})
        for output, value in alone.items():
            np.testing.assert_allclose(together[output][row], value, rtol=1e-4, atol=1e-5)


def test_graphs_with_loops_or_branches_get_the_executor_that_can_nest_them() -> None:
    import tensorflow as tf

    number = tf.TensorSpec([], tf.float32)
    straight = tf.function(lambda x: x + 1.0).get_concrete_function(number)
    branching = tf.function(lambda x: tf.cond(x > 0.0, lambda: x, lambda: -x)).get_concrete_function(number)
    assert executor_for(straight) == "single_threaded"
    assert executor_for(branching) == "default"


def test_a_report_tells_what_failed_from_what_was_not_tried() -> None:
    from benchmarks.vectorizer import Way

    ways = [Way("one by one", None, times_s=[3e-6, 1e-6, 2e-6]), Way("map_fn", None, "Error: no")]
    line = report_line("digits", 8, ways)
    assert line.split() == ["digits", "8", "2", "fails", "-", "-", "-"]


def test_the_verdict_compares_the_largest_batch() -> None:
    seconds = {"one by one": 10.0, "Rowwise": 2.0, "by hand": 1.0}
    results = [
        {"model": "digits", "rows": 64, "seconds": seconds},
        {"model": "digits", "rows": 8, "seconds": {"one by one": 1.0, "Rowwise": 1.0}},
    ]
    (line,) = verdicts(results)
    assert line == "digits, 64 rows: 5.0x as fast as one by one; 2.00x the time of by hand, target 1.1: MISSED"

"""What the vectorizer is measured against computes the same: a bar that answers otherwise would be no bar."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.paper import CONFIGURATIONS
from benchmarks.workloads import WORKLOADS

N_ROWS = 3
#: Its version by hand is the same Keras model, and tracing it takes a minute.
QUICK = [name for name in WORKLOADS if name != "mobilenet_v2"]


@pytest.mark.parametrize("name", QUICK)
def test_a_model_batched_by_hand_answers_as_its_per_example_function(name: str) -> None:
    import tensorflow as tf

    workload = WORKLOADS[name]
    batch = workload.batch(N_ROWS)
    specs = {key: tf.TensorSpec(value.shape, workload.inputs[key].dtype) for key, value in batch.items()}
    by_hand = tf.function(workload.by_hand).get_concrete_function(**specs)
    together = by_hand(**{key: tf.constant(value) for key, value in batch.items()})
    one = tf.function(workload.predict)
    for row in range(N_ROWS):
        alone = one(**{key: tf.constant(value[row]) for key, value in batch.items()})
        for output, value in alone.items():
            np.testing.assert_allclose(together[output][row], value, rtol=1e-4, atol=1e-5)


def test_examples_of_variable_length_differ_in_it() -> None:
    """Lengths that all agree would leave out what masking costs."""
    for name, length in {"lstm": "length", "tree_lstm": "n_leaves", "encoder": "length"}.items():
        assert len(set(WORKLOADS[name].batch(8)[length].tolist())) > 1


@pytest.mark.parametrize("name", ["add", "matmul", "basic_while", "dynamic_rnn"])
def test_a_configuration_batched_by_hand_answers_as_its_per_example_function(name: str) -> None:
    import tensorflow as tf

    (configuration,) = (entry for entry in CONFIGURATIONS if entry.name == name)
    batch = configuration.batch(N_ROWS)
    assert configuration.by_hand is not None
    together = configuration.by_hand(**{key: tf.constant(value) for key, value in batch.items()})
    one = tf.function(configuration.function)
    for row in range(N_ROWS):
        alone = one(**{key: tf.constant(value[row]) for key, value in batch.items()})
        np.testing.assert_allclose(together[row], alone, rtol=1e-4, atol=1e-4)

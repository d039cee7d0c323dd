"""What a function must not do to the world, because a batch would do it once: refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tests.vectorizer.refusing import X, refuse
from vectorizer import (
    SideEffectError,
    vectorize,
)
from vectorizer.effects import judgement

THIS_FILE = Path(__file__).name
WEIGHT = tf.Variable(1.0)
GENERATOR = tf.random.Generator.from_seed(1)
TRUNCATED = {"shape": [3], "means": 0.0, "stdevs": 1.0, "minvals": -1.0, "maxvals": 1.0}


def prints(x: tf.Tensor) -> tf.Tensor:
    tf.print(x)
    return x


def assigns(x: tf.Tensor) -> tf.Tensor:
    WEIGHT.assign_add(1.0)
    return x * WEIGHT


def assigns_in_branch(x: tf.Tensor) -> tf.Tensor:
    if x[0] > 0:
        WEIGHT.assign_add(1.0)
    return -x


def prints_in_loop(x: tf.Tensor) -> tf.Tensor:
    while tf.reduce_sum(x) < 9.0:
        x += 1.0
        tf.print(x)
    return x


def draws_from_a_generator(x: tf.Tensor) -> tf.Tensor:
    return x + GENERATOR.normal([3])


def writes_a_file(x: tf.Tensor) -> tf.Tensor:
    tf.io.write_file("/nonexistent/file", tf.as_string(x[0]))
    return x


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (prints, "PrintV2"),
        (assigns_in_branch, "AssignAddVariableOp"),
        (prints_in_loop, "PrintV2"),
        (draws_from_a_generator, "RngReadAndSkip"),
        (writes_a_file, "WriteFile"),
        (assigns, "AssignAddVariableOp"),
        (lambda x: tf.numpy_function(lambda v: v, [x], tf.float32), "PyFunc"),
        (lambda x: tf.py_function(lambda v: v, [x], tf.float32), "EagerPyFunc"),
        (lambda x: x + tf.cast(tf.timestamp(), tf.float32), "Timestamp"),
        (lambda x: x + tf.raw_ops.ParameterizedTruncatedNormal(**TRUNCATED), "ParameterizedTruncatedNormal"),
    ],
)
def test_effect_is_refused_by_name_instead_of_being_lost(function: Callable[..., Any], op: str) -> None:
    message = refuse(function, SideEffectError)
    assert f"{op} ({THIS_FILE}:" in message


def test_effect_leaves_the_variable_alone() -> None:
    before = float(WEIGHT)
    refuse(assigns, SideEffectError)
    assert float(WEIGHT) == before


def test_random_op_is_refused_by_name_if_the_user_asks_for_it() -> None:
    with pytest.raises(SideEffectError, match=rf"RandomUniform \({THIS_FILE}:.*stateless.*seed that is an input"):
        vectorize(lambda x: tf.nn.dropout(x, 0.5), inputs=X, buckets=(1,), random="refuse")


#: What a function may do of all that TensorFlow registers as stateful. Everything else is refused by name.
LET_THROUGH = {
    "calls, that are judged by what they call": {"Case", "If", "StatefulPartitionedCall", "While"},
    "reads": {
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "StatelessRandomGetAlg",
        "VarHandleOp",
        "VariableShape",
    },
    "checks, that judge every row": {"Assert", "CheckNumerics", "CheckNumericsV2"},
    "random, drawn from a seed": {
        "Multinomial",
        "RandomGamma",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    },
}


def test_every_stateful_op_of_tensorflow_is_judged() -> None:
    names = [name for name in dir(tf.raw_ops) if not name.startswith("_")]
    definitions = {name: op_def_registry.get(name) for name in names}
    stateful = {name for name, definition in definitions.items() if definition is not None and definition.is_stateful}
    assert len(stateful) > 400
    assert {name for name in stateful if judgement(name) != "refused"} == set().union(*LET_THROUGH.values())
    kinds = {judgement(name) for group in LET_THROUGH.values() for name in group}
    assert kinds == {"harmless", "check", "random"}

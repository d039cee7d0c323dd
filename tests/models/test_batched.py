"""The oracle: what the vectorizer makes of a model answers every example as the model itself does, alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import digits, digits_convnet, embedding, implied_volatility, lstm
from server.graph_checks.check import check_saved_model
from tests.graph_checks.saved import save_concrete
from vectorizer import Length, Vectorized, vectorize

BUCKETS = (1, 8)
LENGTHS = {lstm: (16, 64), embedding: (32, 128)}


def vectorized(model: ModuleType) -> Vectorized:
    spec = getattr(model, "SPEC", {})
    lengths = {
        name: Length(max=entry["max"], length_input=entry["length_input"], buckets=LENGTHS[model])
        for name, entry in spec.get("inputs", {}).items()
    }
    return vectorize(
        model.predict,
        inputs=model.INPUTS,
        buckets=BUCKETS,
        lengths=lengths,
        tolerance=spec.get("tolerance"),
        examples=spec.get("examples", ()),
    )


def stacked(model: ModuleType, examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    told = {entry["length_input"] for entry in getattr(model, "SPEC", {}).get("inputs", {}).values()}
    return {name: [example[name] for example in examples] for name in model.INPUTS if name not in told}


@pytest.fixture(
    scope="module",
    params=[digits, digits_convnet, lstm, embedding, implied_volatility],
    ids=lambda model: model.__name__,
)
def pair(request: pytest.FixtureRequest) -> tuple[ModuleType, Vectorized]:
    return request.param, vectorized(request.param)


@pytest.mark.parametrize("n_rows", [1, 2, 7, 8, 29])
def test_batched_answers_equal_those_of_the_model_alone(pair: tuple[ModuleType, Vectorized], n_rows: int) -> None:
    model, batched = pair
    alone = tf.function(model.predict).get_concrete_function(**model.INPUTS)
    examples = list(itertools.islice(model.examples(), 3, 3 + n_rows))
    answers = batched(**stacked(model, examples))
    for row, example in enumerate(examples):
        expected = alone(**{name: tf.constant(value) for name, value in example.items()})
        for output, value in expected.items():
            precise = value.dtype == tf.float64
            np.testing.assert_allclose(
                answers[output][row], value, rtol=1e-9 if precise else 1e-4, atol=1e-12 if precise else 1e-5
            )


def test_no_op_of_a_model_runs_once_per_row(pair: tuple[ModuleType, Vectorized]) -> None:
    _, batched = pair
    assert not batched.certificate.looped
    assert batched.certificate.loops_batched == batched.certificate.loops_unbatched


def test_batched_graphs_hold_only_what_a_server_loads(pair: tuple[ModuleType, Vectorized], tmp_path: Path) -> None:
    model, batched = pair
    for number, graph in enumerate(
        (tf.function(model.predict).get_concrete_function(**model.INPUTS), *batched.graphs.values())
    ):
        size = check_saved_model(save_concrete(tmp_path / str(number), graph), serves=True)
        assert size.n_nodes > 3

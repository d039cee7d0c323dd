"""What is sent, and what counts as the right answer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import httptools
import numpy as np
import orjson
import pytest

from loadtests import workload
from loadtests.workload import Workload, equal
from models import embedding, implied_volatility


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (0.5, 0.5),
        (0.50001, 0.5),
        (1, 1.0),
        ([1.0, [2.00001]], [1.0, [2.0]]),
        ({"a": [0.1], "b": "x"}, {"b": "x", "a": [0.1]}),
        (7, 7),
        (True, True),
        ([], []),
        (1e6 + 50, 1e6),
    ],
)
def test_values_within_the_tolerance_are_equal(got: Any, expected: Any) -> None:
    assert equal(got, expected, tolerance=1e-4)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (0.501, 0.5),
        (None, 0.5),
        ("0.5", 0.5),
        (True, 1.0),
        (math.nan, 0.5),
        (math.inf, 0.5),
        ([0.5], 0.5),
        (0.5, [0.5]),
        ([0.5, 0.5], [0.5]),
        ([], [0.5]),
        ({"a": 1.0, "b": 1.0}, {"a": 1.0}),
        ({"b": 1.0}, {"a": 1.0}),
        (8, 7),
        (7.0, 7),
        (1, True),
        ("y", "x"),
        (1e6 + 200, 1e6),
    ],
)
def test_other_values_are_not_equal(got: Any, expected: Any) -> None:
    assert not equal(got, expected, tolerance=1e-4)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"outputs":[0.5]}', b'{"predictions":0.5}'])
def test_a_body_that_holds_no_predictions_is_not_accepted(doubling_workload: Workload, body: bytes) -> None:
    assert doubling_workload.accepts(0, b'{"predictions":[0.5]}')
    assert not doubling_workload.accepts(0, body)


def test_the_right_answer_to_another_request_is_not_accepted(doubling_workload: Workload) -> None:
    assert doubling_workload.accepts(1, b'{"predictions":[2.5]}')
    assert not doubling_workload.accepts(2, b'{"predictions":[2.5]}')


def test_a_workload_survives_its_file(doubling_workload: Workload, tmp_path: Path) -> None:
    (tmp_path / "w.json").write_bytes(doubling_workload.to_json())
    assert workload.load(tmp_path / "w.json") == doubling_workload


def test_requests_are_complete_http(doubling_workload: Workload) -> None:
    for request, body in zip(doubling_workload.requests("somewhere:80"), doubling_workload.bodies, strict=True):
        seen: dict[str, Any] = {"headers": {}, "complete": False}

        class Collector:
            def on_header(self, name: bytes, value: bytes, seen: dict[str, Any] = seen) -> None:
                seen["headers"][name.lower()] = value

            def on_body(self, data: bytes, seen: dict[str, Any] = seen) -> None:
                seen["body"] = data

            def on_message_complete(self, seen: dict[str, Any] = seen) -> None:
                seen["complete"] = True

        parser = httptools.HttpRequestParser(Collector())
        parser.feed_data(request)
        assert parser.get_method() == b"POST"
        assert parser.should_keep_alive()
        assert seen["complete"]
        assert seen["body"] == body
        assert seen["headers"][b"host"] == b"somewhere:80"
        assert seen["headers"][b"content-type"] == b"application/json"


def test_a_model_of_variable_length_is_sent_its_own_length_and_no_length_input() -> None:
    made = workload.build("embedding")
    examples = list(embedding.examples())
    assert len(made.bodies) == len(made.answers) == len(examples)
    for body, answer, example in zip(made.bodies, made.answers, examples, strict=True):
        assert orjson.loads(body) == {"instances": [example["tokens"].tolist()]}
        assert np.linalg.norm(answer) == pytest.approx(1, abs=1e-5)
    assert made.path == "/v1/models/embedding:predict"


def test_a_model_of_several_inputs_is_sent_them_by_name() -> None:
    made = workload.build("implied_volatility")
    first = next(iter(implied_volatility.examples()))
    assert orjson.loads(made.bodies[0]) == {"instances": [{name: value.item() for name, value in first.items()}]}
    assert isinstance(made.answers[0], float)


def test_making_a_workload_for_an_unknown_model_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown model 'digit'.*digits, digits_convnet"):
        workload.make("digit", tmp_path)


def test_a_failed_making_says_what_went_wrong(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"for 'embedding' failed:[\s\S]*FileNotFoundError"):
        workload.make("embedding", tmp_path / "missing")

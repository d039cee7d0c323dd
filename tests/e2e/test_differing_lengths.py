"""Answers whose size depends on the example, over HTTP: every caller gets its own number of elements."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
import tensorflow as tf
from server_process import ServerProcess

import rowwise

pytestmark = [pytest.mark.e2e, pytest.mark.long]

PREDICT = "/v1/models/words:predict"
LINES = ["the quick brown fox", "", "one", "a b", "   ", "to be or not to be"]


def words(line: tf.Tensor, x: tf.Tensor) -> dict[str, tf.Tensor]:
    """Take a line apart, and keep what is positive."""
    tokens = tf.strings.split(line)
    kept = tf.boolean_mask(x, x > 0.0)
    return {"tokens": tokens, "n": tf.size(tokens), "kept": kept, "mean": tf.reduce_sum(kept) / 3.0}


def example(index: int) -> dict[str, Any]:
    x = np.random.default_rng(index).normal(size=4).astype(np.float32)
    return {"line": LINES[index % len(LINES)], "x": [float(-abs(value) if index % 5 == 0 else value) for value in x]}


def expected(one: dict[str, Any]) -> dict[str, Any]:
    tokens, kept = one["line"].split(), [value for value in one["x"] if value > 0]
    return {"tokens": tokens, "n": len(tokens), "kept": kept, "mean": sum(kept) / 3}


@pytest.fixture(scope="module")
def registered(server: ServerProcess) -> ServerProcess:
    inputs = {"line": tf.TensorSpec([], tf.string), "x": tf.TensorSpec([4])}
    with rowwise.Client(server.url) as client:
        assert client.register("words", words, inputs=inputs, buckets=[1, 16]).state == "AVAILABLE"
    return server


def check(got: dict[str, Any], one: dict[str, Any]) -> None:
    want = expected(one)
    assert (got["tokens"], got["n"]) == (want["tokens"], want["n"])
    np.testing.assert_allclose(got["kept"], want["kept"], rtol=1e-6)
    np.testing.assert_allclose(got["mean"], want["mean"], rtol=1e-5)


def test_each_row_has_its_own_number_of_elements_at_every_batch_size(registered: ServerProcess) -> None:
    for n_rows in (1, 3, 4, 16, 23):
        examples = [example(index) for index in range(n_rows)]
        answer = httpx.post(registered.url + PREDICT, json={"instances": examples})
        assert answer.status_code == 200, answer.text
        for got, one in zip(answer.json()["predictions"], examples, strict=True):
            check(got, one)


def test_many_callers_get_no_element_of_another_caller(registered: ServerProcess) -> None:
    with httpx.Client(base_url=registered.url, limits=httpx.Limits(max_connections=16)) as http:

        def ask(index: int) -> None:
            one = example(index)
            answer = http.post(PREDICT, json={"instances": [one]})
            assert answer.status_code == 200, answer.text
            check(answer.json()["predictions"][0], one)

        with ThreadPoolExecutor(16) as callers:
            list(callers.map(ask, range(100)))


def test_column_form_holds_lists_of_different_lengths(registered: ServerProcess) -> None:
    columns = {"line": ["a b", "", "c"], "x": [[1.0, -1.0, 2.0, 0.0], [-1.0] * 4, [1.0] * 4]}
    answer = httpx.post(registered.url + PREDICT, json={"inputs": columns}).json()["outputs"]
    assert answer["tokens"] == [["a", "b"], [], ["c"]]
    assert answer["kept"] == [[1.0, 2.0], [], [1.0, 1.0, 1.0, 1.0]]


def test_metadata_says_that_the_size_differs(registered: ServerProcess) -> None:
    metadata = httpx.get(f"{registered.url}/v1/models/words/metadata").json()["metadata"]
    outputs = metadata["signature_def"]["signature_def"]["serving_default"]["outputs"]
    assert outputs.keys() == {"tokens", "n", "kept", "mean"}
    assert [dim["size"] for dim in outputs["tokens"]["tensor_shape"]["dim"]] == ["-1", "-1"]
    assert [dim["size"] for dim in outputs["n"]["tensor_shape"]["dim"]] == ["-1"]


def test_the_client_reads_rows_of_any_length(registered: ServerProcess) -> None:
    with rowwise.Client(registered.url) as client:
        got = client.predict("words", line="x y z", x=np.array([-1, 2, -3, 4], np.float32))
        assert [bytes(token) if isinstance(token, bytes) else token for token in got["tokens"]] in (
            ["x", "y", "z"],
            [b"x", b"y", b"z"],
        )
        assert np.asarray(got["kept"]).tolist() == [2.0, 4.0]
        assert len(client.predict("words", line="", x=-np.ones(4, np.float32))["kept"]) == 0

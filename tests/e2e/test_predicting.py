"""The prediction path of the real server: right answers in whatever company, and sentences for the rest."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import httpx
import numpy as np
import pytest
from server_process import ServerProcess

import models.digits

pytestmark = pytest.mark.e2e

PREDICT = "/v1/models/digits:predict"


@pytest.fixture(scope="module")
def examples() -> list[np.ndarray[Any, Any]]:
    return [example["image"] for example in islice(models.digits.examples(), 256)]


@pytest.fixture(scope="module")
def oracle(examples: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The per-example function, one call for each example."""
    return [np.asarray(models.digits.predict(image)["probabilities"]) for image in examples]


def test_many_callers_get_each_their_own_answer(
    server: ServerProcess, examples: list[np.ndarray[Any, Any]], oracle: list[np.ndarray[Any, Any]]
) -> None:
    with httpx.Client(base_url=server.url, limits=httpx.Limits(max_connections=32)) as http:

        def ask(index: int) -> np.ndarray[Any, Any]:
            answer = http.post(PREDICT, json={"instances": [examples[index].tolist()]})
            assert answer.status_code == 200, answer.text
            return np.asarray(answer.json()["predictions"][0])

        with ThreadPoolExecutor(32) as callers:
            answers = list(callers.map(ask, range(len(examples))))
    for got, expected in zip(answers, oracle, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_request_may_hold_more_examples_than_the_largest_batch(
    server: ServerProcess, examples: list[np.ndarray[Any, Any]], oracle: list[np.ndarray[Any, Any]]
) -> None:
    instances = [image.tolist() for image in examples] * 4
    answer = httpx.post(server.url + PREDICT, json={"instances": instances})
    assert answer.status_code == 200, answer.text
    np.testing.assert_allclose(answer.json()["predictions"], np.tile(oracle, (4, 1)), atol=1e-5)


def test_column_form_is_answered_in_column_form(
    server: ServerProcess, examples: list[np.ndarray[Any, Any]], oracle: list[np.ndarray[Any, Any]]
) -> None:
    answer = httpx.post(server.url + PREDICT, json={"inputs": [image.tolist() for image in examples[:3]]})
    np.testing.assert_allclose(answer.json()["outputs"], oracle[:3], atol=1e-5)


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/models/nobody:predict", b'{"instances": [[0]]}', 404, "model 'nobody' is unknown"),
        ("/v1/models/digits/versions/99:predict", b'{"instances": [[0]]}', 404, "no version 99"),
        ("/v1/models/..%2fdigits:predict", b'{"instances": [[0]]}', 400, "not allowed"),
        (PREDICT, b"", 400, ""),
        (PREDICT, b"{", 400, ""),
        (PREDICT, b"[" * 20_000, 400, ""),
        (PREDICT, b"\xff\xfe", 400, ""),
        (PREDICT, b'{"instances": []}', 400, ""),
        (PREDICT, b'{"instances": [[1, 2]]}', 400, "instance 0"),
        (PREDICT, b'{"instances": [["a"]]}', 400, "instance 0"),
        (PREDICT, b'{"instances": [{"other": 1}]}', 400, ""),
        (PREDICT, b'{"examples": [[1]]}', 400, "instances"),
        (PREDICT, b'{"instances": [[0]], "inputs": [[0]]}', 400, "instances"),
        (PREDICT, json.dumps({"instances": [0] * 10_001}).encode(), 413, ""),
        ("/v1/models/digits:classify", b"{}", 501, ":predict"),
        ("/v1/nothing", b"{}", 404, ""),
    ],
)
def test_a_wrong_request_gets_its_code_and_a_sentence(
    server: ServerProcess, path: str, body: bytes, status: int, says: str
) -> None:
    answer = httpx.post(server.url + path, content=body)
    assert answer.status_code == status, answer.text
    sentence = answer.json()["error"]
    assert says in sentence
    assert len(sentence) > 10


def test_a_body_over_the_limit_is_refused_before_it_is_read(server: ServerProcess) -> None:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    connection.putrequest("POST", PREDICT)
    connection.putheader("Content-Length", str(2**40))
    connection.endheaders(b"{")
    answer = connection.getresponse()
    assert answer.status == 413
    assert "max_body_bytes" in answer.read().decode()
    connection.close()


def test_explain_says_how_the_request_was_batched(server: ServerProcess, examples: list[np.ndarray[Any, Any]]) -> None:
    answer = httpx.post(
        server.url + PREDICT, json={"instances": [examples[0].tolist()] * 3}, headers={"X-Rowwise-Explain": "1"}
    )
    timing = answer.headers["Server-Timing"]
    assert "rows=3" in timing
    assert "queue;dur=" in timing


def test_metrics_count_what_was_asked(server: ServerProcess, examples: list[np.ndarray[Any, Any]]) -> None:
    before = server.counted("rowwise_rows_total")
    httpx.post(server.url + PREDICT, json={"instances": [examples[0].tolist()] * 5}).raise_for_status()
    assert server.counted("rowwise_rows_total") == before + 5


def test_nothing_is_compiled_or_traced_once_the_server_is_ready(
    server: ServerProcess, examples: list[np.ndarray[Any, Any]]
) -> None:
    # Every bucket, and requests that are split over several.
    for n in (1, 2, 3, 5, 9, 17, 33, 65, 130, 400):
        httpx.post(server.url + PREDICT, json={"instances": [examples[0].tolist()] * n}).raise_for_status()
    text = httpx.get(server.url + "/metrics").text
    assert "rowwise_compiled_after_ready 0.0\n" in text
    assert "rowwise_traced_seconds 0.0\n" in text


def test_metrics_have_the_queue_of_every_version_that_serves(server: ServerProcess) -> None:
    text = httpx.get(server.url + "/metrics").text
    assert 'rowwise_queue_rows{entry="predict",model="digits",version="1"} 0.0' in text

"""Which answers count as right, in both forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from loadtests.runs.questions import Question, Questions


def json_questions(answer: bytes | None) -> Questions:
    return Questions(model="m", path="/v1/models/m:predict", questions=(Question(body=b"{}", answer=answer),))


def tensors(values: Any, *, name: str = "y", shape: list[int] | None = None) -> bytes:
    array = np.asarray(values)
    datatype = {"float32": "FP32", "int64": "INT64"}[array.dtype.name]
    output = {"name": name, "datatype": datatype, "shape": shape or [1, *array.shape]}
    head = orjson.dumps({"outputs": [{**output, "parameters": {"binary_data_size": array.nbytes}}]})
    return head + array.tobytes()


def test_without_a_known_answer_any_is_right() -> None:
    assert json_questions(None).judge().accepts(0, b"whatever")
    assert not json_questions(None).is_checked


@pytest.mark.parametrize(
    ("body", "is_right"),
    [
        (b'{"predictions":[0.5]}', True),
        (b'{"predictions": [0.50001]}', True),
        (b'{"predictions":[0.6]}', False),
        (b'{"predictions":[0.5,0.5]}', False),
        (b'{"outputs":[0.5]}', False),
        (b"[]", False),
        (b"{", False),
    ],
)
def test_json_is_compared_within_the_tolerance(body: bytes, *, is_right: bool) -> None:
    assert json_questions(b'{"predictions":[0.5]}').judge().accepts(0, body) is is_right


def test_a_body_that_was_right_is_right_again_without_being_read() -> None:
    judge = json_questions(b'{"predictions":[NaN]}').judge()
    assert judge.accepts(0, b'{"predictions":[NaN]}'), "the same bytes are the same answer"


def test_binary_answers_are_compared_as_numbers() -> None:
    right = np.array([1.0, 2.0], np.float32)
    questions = Questions(
        model="m",
        path="/v2/models/m/infer",
        questions=(Question(body=b"", answer=tensors(right)),),
        is_binary=True,
    )
    judge = questions.judge()
    assert judge.accepts(0, tensors(right + np.float32(1e-6)))
    assert not judge.accepts(0, tensors(right + np.float32(0.1)))
    assert not judge.accepts(0, tensors(right, name="z"))
    assert not judge.accepts(0, tensors(right, shape=[2, 1]))
    assert not judge.accepts(0, tensors(right) + b"\0")
    assert not judge.accepts(0, tensors(np.array([1, 2], np.int64)))
    assert not judge.accepts(0, b"\xff\xfe")


def test_requests_carry_the_headers_of_all_and_their_own() -> None:
    questions = Questions(
        model="m",
        path="/p",
        questions=(Question(body=b"abc", headers=(("X-Own", "1"),)),),
        headers=(("Authorization", "Bearer t"),),
    )
    (request,) = questions.requests("host:1")
    head, _, body = request.partition(b"\r\n\r\n")
    assert body == b"abc"
    assert head.split(b"\r\n") == [
        b"POST /p HTTP/1.1",
        b"Host: host:1",
        b"Authorization: Bearer t",
        b"X-Own: 1",
        b"Content-Length: 3",
    ]

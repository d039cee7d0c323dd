"""Predictions over HTTP: answers, refusals, deadlines, and callers that leave."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import numpy as np
import pytest

from server.batching.errors import (
    DeadlineExceeded,
    Draining,
    ExecutionFailed,
    ModelUnloaded,
    QueueFull,
    TooManyRows,
)
from server.errors import RowwiseError
from server.store.records import State
from tests.web.scripted import Service
from tests.web.scripted_model import SEQUENCE, ScriptedAnswer, ScriptedModel
from tests.web.wire import Wire, pieces

ONE = {"instances": [[1, 2, 3]]}
TWO = {"inputs": [[1, 2, 3], [4, 5, 6]]}


def test_rows_are_answered_with_predictions_and_columns_with_outputs(service: Service) -> None:
    by_row, by_column = service.predict(ONE), service.predict(TWO)
    assert (by_row.status_code, by_row.json()) == (200, {"predictions": [6.0]})
    assert (by_column.status_code, by_column.json()) == (200, {"outputs": [6.0, 15.0]})
    assert by_row.headers["content-type"] == "application/json"
    assert by_row.headers["content-length"] == str(len(by_row.content))


def test_words_of_a_path_are_case_insensitive_and_names_are_not(service: Service) -> None:
    for path in ("/V1/Models/sum:PREDICT", "/v1/models/sum/VERSIONS/3:Predict"):
        assert service.predict(ONE, path).status_code == 200
    assert service.predict(ONE, "/v1/models/SUM:predict").status_code == 404


def test_a_version_and_a_label_can_be_named(service: Service) -> None:
    service.catalog.serve(ScriptedModel("sum", 4, outputs=[np.array([4.0])]), labels={"canary": ""})
    assert service.predict(ONE).json() == {"predictions": [4.0]}
    assert service.predict(ONE, "/v1/models/sum/versions/3:predict").json() == {"predictions": [6.0]}
    assert service.predict(ONE, "/v1/models/sum/labels/canary:predict").json() == {"predictions": [4.0]}


def test_values_that_are_not_finite_are_answered(service: Service, model: ScriptedModel) -> None:
    assert service.predict(b'{"instances": [[NaN, 1, 2]]}').content == b'{"predictions":[NaN]}'
    assert service.predict(b'{"instances": [[-Infinity, 1, 2]]}').content == b'{"predictions":[-Infinity]}'


def test_variable_length_examples_arrive_at_their_own_length(service: Service) -> None:
    seq = service.catalog.serve(ScriptedModel("seq", 1, SEQUENCE, outputs=[[np.array([1.0]), np.array([])]]))
    body = {"instances": [{"tokens": [[1, 2]], "text": "a"}, {"tokens": [], "text": {"b64": "AA=="}}]}
    assert service.predict(body, "/v1/models/seq:predict").json() == {"predictions": [[1.0], []]}
    assert seq.rows[0].lengths == [(1,), (0,)]


REFUSALS = [
    ("unknown model", "/v1/models/nobody:predict", ONE, 404, "model 'nobody' is unknown: register it first"),
    ("unknown version", "/v1/models/sum/versions/9:predict", ONE, 404, "model 'sum' has no version 9"),
    (
        "version no number",
        "/v1/models/sum/versions/latest:predict",
        ONE,
        400,
        "version 'latest' is no version number: versions are 1, 2, 3, ...",
    ),
    ("version zero", "/v1/models/sum/versions/0:predict", ONE, 400, "version '0' is no version number"),
    ("version huge", f"/v1/models/sum/versions/{'9' * 400}:predict", ONE, 400, "is no version number"),
    (
        "unknown label",
        "/v1/models/sum/labels/stable:predict",
        ONE,
        404,
        "model 'sum' has no version with the label 'stable'; it has none",
    ),
    ("unknown verb", "/v1/models/sum:train", ONE, 404, "':train' is nothing that a model can be asked; use ':predict'"),
    ("no verb", "/v1/models/sum:", ONE, 404, "':' is nothing that a model can be asked"),
    (
        "classify",
        "/v1/models/sum:classify",
        ONE,
        501,
        "model 'sum': this model declares no class labels; use ':predict' instead of ':classify'",
    ),
    ("regress", "/v1/models/sum:Regress", ONE, 501, "declares no regression output; use ':predict' instead"),
    ("empty body", "/v1/models/sum:predict", b"", 400, "the body is empty"),
    ("malformed", "/v1/models/sum:predict", b'{"instances": [[1,2', 400, "the body is not JSON: Expecting"),
    ("deep", "/v1/models/sum:predict", b"[" * 20_000 + b"]" * 20_000, 400, "nested too deeply"),
    ("shape", "/v1/models/sum:predict", {"instances": [[1, 2, 3], [1]]}, 400, "expected float32[3], got [1]"),
    ("dtype", "/v1/models/sum:predict", {"instances": [["a", 2, 3]]}, 400, 'expected float32, got "a"; send a number'),
    ("key", "/v1/models/sum:predict", {"instances": [{"y": [1, 2, 3]}]}, 400, "input 'x' is missing; 'y' is no input"),
    ("no form", "/v1/models/sum:predict", {"rows": []}, 400, "neither 'instances' nor 'inputs'"),
    ("both forms", "/v1/models/sum:predict", {**ONE, **TWO}, 400, "has both 'instances' and 'inputs'"),
    ("no instances", "/v1/models/sum:predict", {"instances": []}, 400, "'instances' is empty: send at least"),
    ("signature", "/v1/models/sum:predict", {**ONE, "signature_name": "x"}, 400, "signature_name 'x' is unknown"),
    ("surrogates", "/v1/models/sum:predict", b'{"instances": [{"\\ud800": 1}]}', 400, "is no input of this model"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "code", "sentence"), [c[1:] for c in REFUSALS], ids=[c[0] for c in REFUSALS])
def test_a_wrong_request_gets_its_code_and_sentence(
    service: Service, path: str, body: object, code: int, sentence: str
) -> None:
    answer = service.predict(body, path)
    assert answer.status_code == code
    assert list(answer.json()) == ["error"]
    assert sentence in answer.json()["error"]
    assert answer.headers["x-request-id"]
    assert service.predict(ONE).status_code == 200


def test_other_methods_are_told_which_one_to_use(service: Service) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = service.request(method, "/v1/models/sum:predict")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "OPTIONS, POST"
        assert answer.json() == {"error": f"{method} is not allowed for /v1/models/sum:predict; use POST"}


def test_too_many_instances_are_413(upload_dir: Path) -> None:
    service = Service(upload_dir, max_instances=2)
    service.catalog.serve(ScriptedModel("sum", 3))
    assert service.predict({"instances": [[1, 2, 3]] * 2}).status_code == 200
    answer = service.predict({"instances": [[1, 2, 3]] * 3})
    assert (answer.status_code, answer.json()["error"]) == (
        413,
        "the request holds 3 examples, at most 2 are allowed (max_instances): send them in several requests",
    )


def test_a_body_over_the_limit_is_refused_before_it_is_read(upload_dir: Path) -> None:
    service = Service(upload_dir, max_body_bytes=100)
    service.catalog.serve(ScriptedModel("sum", 3))
    answer = service.predict(b" " * 101)
    assert (answer.status_code, answer.json()["error"]) == (
        413,
        "the body of 101 bytes is over the limit of 100 bytes (max_body_bytes)",
    )
    unread = Wire(service, "POST", "/v1/models/sum:predict", [(b"content-length", b"1000000")])
    asyncio.run(asyncio.wait_for(unread.run(), 60))
    assert unread.status == 413


def test_a_chunked_body_over_the_limit_is_refused_while_it_is_read(upload_dir: Path) -> None:
    service = Service(upload_dir, max_body_bytes=100)
    service.catalog.serve(ScriptedModel("sum", 3))
    assert service.request("POST", "/v1/models/sum:predict", content=pieces(b" " * 60, b" " * 41)).status_code == 413
    assert service.request("POST", "/v1/models/sum:predict", content=pieces(b" " * 101)).status_code == 413


def test_a_body_in_pieces_is_one_body(service: Service) -> None:
    answer = service.request(
        "POST", "/v1/models/sum:predict", content=pieces(b'{"instan', b"", b'ces":[[1,2,', b"3]]}")
    )
    assert answer.json() == {"predictions": [6.0]}


ENDINGS: list[tuple[RowwiseError, int, str | None]] = [
    (QueueFull("4096 rows wait", retry_after_s=2.1), 429, "3"),
    (QueueFull("4096 rows wait", retry_after_s=0.001), 429, "1"),
    (QueueFull("4096 rows wait", retry_after_s=float("inf")), 429, "1"),
    (Draining("the server is stopping", retry_after_s=5), 503, "5"),
    (ModelUnloaded("model 'sum' was unloaded"), 503, "1"),
    (TooManyRows("never fits"), 413, None),
    (DeadlineExceeded("the deadline passed in the queue"), 504, None),
    (ExecutionFailed("it raised", cause=ValueError("x")), 500, None),
]


@pytest.mark.parametrize(("error", "code", "retry_after"), ENDINGS, ids=[type(e[0]).__name__ for e in ENDINGS])
def test_what_batching_refuses_or_fails_becomes_its_code(
    service: Service, model: ScriptedModel, error: RowwiseError, code: int, retry_after: str | None
) -> None:
    model.refusal = error
    refused = service.predict(ONE)
    model.refusal, model.failure = None, error
    failed = service.predict(ONE)
    for answer in (refused, failed):
        assert (answer.status_code, answer.json()) == (code, {"error": str(error)})
        assert answer.headers.get("retry-after") == retry_after
    assert service.counted("rowwise_requests_total", model="sum", version="3", entry="predict", code=str(code)) == 2


def test_a_model_that_is_not_ready_says_why_and_when_to_retry(service: Service) -> None:
    service.catalog.add("slow", 1, State.BUILDING)
    answer = service.predict(ONE, "/v1/models/slow/versions/1:predict")
    assert answer.status_code == 503
    assert answer.json()["error"] == "version 1 of model 'slow' is not ready: it is BUILDING"
    assert answer.headers["retry-after"] == "1"


def test_a_bug_of_ours_is_logged_and_not_told(
    service: Service, model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    model.refusal = ZeroDivisionError("secret")
    with caplog.at_level(logging.ERROR, logger="rowwise.web"):
        answer = service.predict(ONE, headers={"X-Request-Id": "abc"})
    assert answer.status_code == 500
    assert answer.json() == {"error": "internal error: the server's log says more under request id abc"}
    assert "secret" in caplog.text
    model.refusal = None
    assert service.predict(ONE).status_code == 200


def test_an_answer_that_can_not_be_written_is_answered_once(
    service: Service, model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    model.outputs = [np.array([1 + 2j])]
    assert service.predict(ONE).status_code == 500
    assert "its answer could not be written" in caplog.text
    assert service.counted("rowwise_requests_total", model="sum", version="3", entry="predict", code="500") == 1


def test_a_deadline_can_be_set_by_header(service: Service, model: ScriptedModel) -> None:
    service.predict(ONE)
    service.predict(ONE, headers={"X-Request-Timeout-Ms": "1500"})
    assert model.timeouts_s == [None, 1.5]


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "", "9" * 30, "86400001", "²"])
def test_a_deadline_that_is_none_is_refused(service: Service, model: ScriptedModel, value: str) -> None:
    answer = service.predict(ONE, headers={b"X-Request-Timeout-Ms": value.encode("latin-1")})
    assert answer.status_code == 400
    assert "X-Request-Timeout-Ms must be a whole number from 1 to 86400000, got" in answer.json()["error"]
    assert model.rows == []


def test_request_ids_are_echoed_or_made(service: Service) -> None:
    assert service.predict(ONE, headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert service.request("GET", "/v1/models", headers={"X-Request-Id": "mine-2"}).headers["x-request-id"] == "mine-2"
    made = {service.predict(ONE).headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    for bad in (b"with space", b"x" * 200, b"\xff", b"line\x0bbreak"):
        assert service.predict(ONE, headers={b"X-Request-Id": bad}).headers["x-request-id"] != bad.decode("latin-1")


def test_an_answer_explains_how_it_was_batched_when_asked(service: Service, model: ScriptedModel) -> None:
    assert "server-timing" not in service.predict(ONE).headers
    answer = service.predict(ONE, headers={"X-Rowwise-Explain": "1"})
    assert answer.headers["server-timing"] == (
        'queue;dur=1.000, compute;dur=2.000, batch;desc="id=7 rows=5 bucket=8 padding=3 reason=executor free"'
    )


def test_a_caller_that_leaves_takes_its_rows_back(service: Service, model: ScriptedModel) -> None:
    model.holds = True

    async def scenario() -> Wire:
        wire = Wire(service, "POST", "/v1/models/sum:predict")
        wire.put(b'{"instances": [[1, 2, 3]]}')
        wire.leave()
        await asyncio.wait_for(wire.run(), 60)
        return wire

    assert asyncio.run(scenario()).sent == []
    assert [ticket.cancelled for ticket in model.tickets] == [True]
    assert service.counted("rowwise_requests_total", model="sum", version="3", entry="predict", code="499") == 1
    model.held[0](ScriptedAnswer(outputs=[np.array([6.0])]))
    assert service.counted("rowwise_requests_total", model="sum", version="3", entry="predict", code="200") == 0


def test_a_caller_that_leaves_while_it_sends_is_not_executed(service: Service, model: ScriptedModel) -> None:
    async def scenario() -> Wire:
        wire = Wire(service, "POST", "/v1/models/sum:predict")
        wire.put(b'{"instances": [[1, 2, 3]]', more=True)
        wire.leave()
        await asyncio.wait_for(wire.run(), 60)
        return wire

    assert asyncio.run(scenario()).sent == []
    assert model.rows == []
    assert service.counted("rowwise_requests_total", model="", version="", entry="", code="499") == 1


def test_a_cancelled_server_task_takes_the_rows_back(service: Service, model: ScriptedModel) -> None:
    model.holds = True

    async def scenario() -> None:
        wire = Wire(service, "POST", "/v1/models/sum:predict")
        wire.put(b'{"instances": [[1, 2, 3]]}')
        task = asyncio.create_task(wire.run())
        await model.admitted.wait()
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(scenario())
    assert model.tickets[0].cancelled


def test_a_late_answer_reaches_a_caller_that_waits(service: Service, model: ScriptedModel) -> None:
    model.holds = True

    async def scenario() -> Wire:
        wire = Wire(service, "POST", "/v1/models/sum:predict")
        wire.put(b'{"instances": [[1, 2, 3]]}')
        task = asyncio.create_task(wire.run())
        await model.admitted.wait()
        model.held[0](ScriptedAnswer(outputs=[np.array([6.0], np.float32)]))
        await asyncio.wait_for(task, 60)
        return wire

    assert asyncio.run(scenario()).sent[1]["body"] == b'{"predictions":[6.0]}'


def test_prediction_can_need_the_token(upload_dir: Path) -> None:
    service = Service(upload_dir, token="s3cret", protect_predict=True)
    service.catalog.serve(ScriptedModel("sum", 3))
    assert service.predict(ONE).status_code == 401
    assert service.request("GET", "/v1/models/sum").status_code == 401
    assert service.predict(ONE, headers={"X-API-Key": "s3cret"}).status_code == 200


def test_requests_are_counted_by_model_version_and_code(service: Service) -> None:
    service.predict(ONE)
    service.predict({"instances": []})
    service.predict(ONE, "/v1/models/nobody:predict")
    service.predict(ONE, "/v1/models/sum/versions/77:predict")
    assert service.counted("rowwise_requests_total", model="sum", version="3", entry="predict", code="200") == 1
    assert service.counted("rowwise_requests_total", model="sum", version="3", entry="predict", code="400") == 1
    assert service.counted("rowwise_requests_total", model="", version="", entry="", code="404") == 2
    assert service.counted("rowwise_queue_seconds_count", model="sum", version="3", entry="predict") == 1


def test_the_access_log_has_a_line_for_each_request(upload_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = Service(upload_dir, access_log=True)
    with caplog.at_level(logging.INFO, logger="rowwise.access"):
        service.request("GET", "/v1/models/a%0Ab", headers={"X-Request-Id": "r1"})
        service.predict(ONE)
    lines = [record.getMessage() for record in caplog.records if record.name == "rowwise.access"]
    assert len(lines) == 2
    assert "GET '/v1/models/a\\nb' 404" in lines[0]
    assert "id=r1" in lines[0]

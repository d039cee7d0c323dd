"""What passes through the recorder, and what is kept of it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from starlette.testclient import TestClient

from loadtests.runs.inputs import recorded
from loadtests.runs.recorder import Recorder, create_app, kept_name
from rowwise._metadata import RemoteSignature

ASKED: list[httpx.Request] = []


async def behind(request: httpx.Request) -> httpx.Response:
    """The server behind it: refuses instances of -1, and answers everything else."""
    ASKED.append(request)
    if b"-1" in request.content:
        return httpx.Response(400, json={"error": "minus one"})
    return httpx.Response(200, content=b'{"predictions":[1]}', headers={"x-request-id": "7", "connection": "close"})


@pytest.fixture
def through(tmp_path: Path) -> Any:
    ASKED.clear()
    recorder = Recorder(directory=tmp_path / "kept", max_examples=5)
    app = create_app("http://server:1", recorder, transport=httpx.MockTransport(behind))
    with TestClient(app) as client:
        yield client, recorder


def test_examples_that_were_answered_are_kept_and_can_be_read_again(through: Any) -> None:
    client, recorder = through
    for body in (b'{"instances": [[1, 2, 3], [4, 5, NaN]]}', b'{"instances": [-1]}', b'{"instances": [{"x": [7]}]}'):
        client.post("/v1/models/m:predict", content=body)
    client.post("/v1/models/m/versions/2:predict", content=b'{"instances": [[9]]}')
    path = recorder.directory / "m.jsonl"
    assert path.read_bytes().splitlines() == [b"[1,2,3]", b"[4,5,NaN]", b'{"x":[7]}', b"[9]"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    signature = RemoteSignature(inputs=("x",), outputs={"y": None}, input_shapes={"x": (None,)})
    assert recorded(path, signature)[2] == {"x": [7]}


def test_requests_and_answers_pass_as_they_are_and_no_header_is_written(through: Any) -> None:
    client, recorder = through
    answer = client.post(
        "/v1/models/m:predict?a=1",
        content=b'{"instances": [1]}',
        headers={"Authorization": "Bearer secret", "X-Request-Timeout-Ms": "50"},
    )
    assert answer.content == b'{"predictions":[1]}'
    assert answer.headers["x-request-id"] == "7"
    (asked,) = ASKED
    assert str(asked.url) == "http://server:1/v1/models/m:predict?a=1"
    assert asked.headers["authorization"] == "Bearer secret"
    assert asked.headers["x-request-timeout-ms"] == "50"
    assert b"secret" not in (recorder.directory / "m.jsonl").read_bytes()


def test_a_quoted_name_stays_quoted(through: Any) -> None:
    client, recorder = through
    client.post("/v1/models/a%2Fb:predict", content=b'{"instances": [1]}')
    assert ASKED[0].url.raw_path == b"/v1/models/a%2Fb:predict"
    assert recorder.n_kept == {"a/b": 1}
    assert [path.name for path in recorder.directory.iterdir()] == ["a%2Fb.jsonl"]


def test_what_is_no_row_of_examples_passes_and_is_counted(through: Any) -> None:
    client, recorder = through
    client.get("/v1/models")
    client.post("/v1/models/m:predict", content=b'{"inputs": {"x": [1]}}')
    client.post("/v2/models/m/infer", content=b"{}")
    assert recorder.n_passed == 2
    assert not recorder.directory.exists()


def test_no_more_is_kept_than_allowed(through: Any) -> None:
    client, recorder = through
    client.post("/v1/models/m:predict", content=orjson.dumps({"instances": list(range(20))}))
    assert recorder.n_kept == {"m": 5}
    assert recorder.n_passed == 1


@pytest.mark.parametrize("model", ["../up", "a/b", "..", "m"])
def test_a_file_stays_in_its_directory_whatever_the_model_is_called(model: str) -> None:
    assert "/" not in kept_name(model)
    assert kept_name(model).endswith(".jsonl")


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").symlink_to(tmp_path / "elsewhere")
    recorder = Recorder(directory=tmp_path, max_examples=5)
    with pytest.raises(OSError, match="symbolic links"):
        recorder.keep("/v1/models/m:predict", b'{"instances": [1]}')
    assert not (tmp_path / "elsewhere").exists()

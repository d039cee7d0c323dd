"""Compressed request bodies: the same answers, and a few kilobytes never become more than the limit."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest

from server.web.bodies import read_body
from server.web.content_encoding import PIECE_BYTES, inflated
from server.web.errors import BodyDamaged, BodyTooLarge, WebError
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel
from tests.web.sockets import Connection, Running, over_sockets, total
from tests.web.wire import Wire, pieces

ONE = json.dumps({"instances": [[1, 2, 3]]}).encode()
COMPRESSED = {"gzip": gzip.compress(ONE), "x-gzip": gzip.compress(ONE), "deflate": zlib.compress(ONE)}


async def read(*parts: bytes, encoding: bytes, limit_bytes: int = 2**20) -> bytes:
    """Read a body that comes in these parts."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Any:
        return messages.pop(0)

    return await read_body(inflated(receive, encoding), length_bytes=None, limit_bytes=limit_bytes, setting="here")


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "GZIP", "identity"])
def test_a_compressed_prediction_gets_the_answer_of_a_plain_one(service: Service, encoding: str) -> None:
    body = COMPRESSED.get(encoding.lower(), ONE)
    answer = service.predict(body, headers={"Content-Encoding": encoding})
    assert (answer.status_code, answer.json()) == (200, {"predictions": [6.0]})


def test_a_compressed_prediction_is_read_on_a_connection_of_plain_ones(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        body = COMPRESSED["gzip"]
        head = b"POST /v1/models/sum:predict HTTP/1.1\r\nHost: test\r\n"
        plain = head + b"Content-Length: %d\r\n\r\n" % len(ONE) + ONE
        packed = head + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        connection.send(plain + packed + plain + packed + packed)
        assert [total(await connection.answer()) for _ in range(5)] == [6] * 5

    over_sockets(test, tmp_path)


def test_binary_tensors_may_be_compressed_and_the_length_of_their_json_is_that_before(service: Service) -> None:
    service.catalog.serve(ScriptedModel("sum", 4))
    tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}
    text = json.dumps({"inputs": [tensor]}).encode()
    body = gzip.compress(text + bytes.fromhex("0000803f0000004000004040"))
    headers = {"Content-Encoding": "gzip", "Inference-Header-Content-Length": str(len(text))}
    answer = service.request("POST", "/v2/models/sum/infer", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"][0]["data"] == [6.0]


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/models/sum:predict"), ("PUT", "/v1/models/sum"), ("POST", "/v2/repository/index")],
)
def test_an_encoding_that_is_not_read_is_415_with_those_that_are(
    service: Service, encoding: str, method: str, path: str
) -> None:
    headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
    answer = service.request(method, path, content=ONE, headers=headers)
    assert answer.status_code == 415
    assert answer.headers["accept-encoding"] == "gzip, deflate"
    assert answer.json()["error"] == (
        f"Content-Encoding '{encoding}' is not supported: send the body as gzip or deflate, or uncompressed"
    )


def test_a_compressed_registration_is_read(service: Service) -> None:
    body = gzip.compress(json.dumps({"import_path": "models.digits:predict"}).encode())
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    assert service.request("PUT", "/v1/models/digits", content=body, headers=headers).status_code == 202
    assert len(service.catalog.registered) == 1


def test_a_compressed_upload_arrives_as_it_was(service: Service) -> None:
    archive = bytes(range(256)) * 8_192
    form = (
        b'--b\r\nContent-Disposition: form-data; name="archive"; filename="m.tar.gz"\r\n\r\n'
        + archive
        + b"\r\n--b--\r\n"
    )
    headers = {"Content-Encoding": "gzip", "Content-Type": "multipart/form-data; boundary=b"}
    answer = service.request("PUT", "/v1/models/digits", content=pieces(gzip.compress(form)), headers=headers)
    assert answer.status_code == 202, answer.text
    assert service.catalog.uploads == [archive]


def test_an_upload_that_inflates_past_its_limit_is_refused_and_leaves_no_file(upload_dir: Path) -> None:
    service = Service(upload_dir, max_archive_bytes=2**20)
    form = b'--b\r\nContent-Disposition: form-data; name="archive"; filename="m.tar.gz"\r\n\r\n' + bytes(2**24)
    headers = {"Content-Encoding": "gzip", "Content-Type": "multipart/form-data; boundary=b"}
    answer = service.request("PUT", "/v1/models/digits", content=pieces(gzip.compress(form)), headers=headers)
    assert answer.status_code == 413
    assert "max_archive_bytes" in answer.json()["error"]
    assert list(upload_dir.iterdir()) == []


def test_an_upload_that_stands_still_is_given_up(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.web.registering.STALL_S", 0.01)
    wire = Wire(service, "PUT", "/v1/models/digits", [(b"content-type", b"multipart/form-data; boundary=b")])
    wire.put(b"--b\r\n", more=True)
    asyncio.run(wire.run())
    assert wire.status == 408
    assert list(service.upload_dir.iterdir()) == []


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
def test_a_bomb_is_refused_at_the_limit_and_takes_no_more_memory(encoding: bytes) -> None:
    limit_bytes = 4 * PIECE_BYTES
    pack = gzip.compress if encoding == b"gzip" else zlib.compress
    bomb = pack(bytes(2**26))
    assert len(bomb) < 2**17
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge, match="here"):
            asyncio.run(read(bomb, encoding=encoding, limit_bytes=limit_bytes))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * limit_bytes + len(bomb) + 2**20


def test_a_bomb_of_many_members_that_hold_nothing_is_refused() -> None:
    with pytest.raises(BodyDamaged, match="more than 1024 members"):
        asyncio.run(read(gzip.compress(b"") * 100_000, encoding=b"gzip"))


def test_inflating_a_large_body_lets_others_have_their_turn(service: Service) -> None:
    async def count_turns() -> int:
        n_turns, body = 0, asyncio.ensure_future(read(gzip.compress(bytes(2**23)), encoding=b"gzip", limit_bytes=2**23))
        while not body.done():
            n_turns += 1
            await asyncio.sleep(0)
        assert len(body.result()) == 2**23
        return n_turns

    assert asyncio.run(count_turns()) >= 2**23 // PIECE_BYTES


@pytest.mark.parametrize("step", [1, 7, 10**6])
def test_a_compressed_body_may_come_in_any_pieces(step: int) -> None:
    text = b"".join(b"%d," % number for number in range(2_000))
    for packed, encoding in (
        (gzip.compress(text), b"gzip"),
        (zlib.compress(text), b"deflate"),
        (gzip.compress(text[:99]) + gzip.compress(b"") + gzip.compress(text[99:]), b"gzip"),
    ):
        parts = [packed[start : start + step] for start in range(0, len(packed), step)]
        assert asyncio.run(read(*parts, encoding=encoding)) == text


def test_a_body_of_exactly_one_piece_ends_there() -> None:
    for n_bytes in (PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES):
        assert asyncio.run(read(gzip.compress(bytes(n_bytes)), encoding=b"gzip")) == bytes(n_bytes)


@pytest.mark.parametrize(
    ("body", "encoding", "says"),
    [
        (ONE, b"gzip", "incorrect header check"),
        (COMPRESSED["gzip"][:-3], b"gzip", "ends before its data does"),
        (b"", b"gzip", "ends before its data does"),
        (COMPRESSED["gzip"][:-8] + bytes(8), b"gzip", "incorrect data check"),
        (COMPRESSED["gzip"] + b"more", b"gzip", "incorrect header check"),
        (COMPRESSED["deflate"] + b"more", b"deflate", "more follows"),
        (COMPRESSED["gzip"], b"deflate", "incorrect header check"),
    ],
    ids=["plain", "cut", "empty", "checksum", "gzip and more", "deflate and more", "the other"],
)
def test_a_body_that_is_not_what_its_encoding_says_is_400_with_the_fault(
    body: bytes, encoding: bytes, says: str
) -> None:
    with pytest.raises(WebError, match=says) as caught:
        asyncio.run(read(body, encoding=encoding))
    assert f"Content-Encoding {encoding.decode()!r}" in str(caught.value)

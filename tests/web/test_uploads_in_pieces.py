"""Archives that are sent in pieces, and go on after a lost connection: the routes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.store.errors import QuotaExceeded
from tests.web.rights import bearer, entry
from tests.web.scripted import Service
from tests.web.uploads import ARCHIVE, PIECE, begin, digest, offset, send


def test_pieces_become_a_version(service: Service) -> None:
    name = base64.b64encode(b"model.zip").decode()
    place = begin(service, **{"upload-metadata": f"filetype eA==,filename {name}", "repr-digest": digest(ARCHIVE)})
    assert offset(service, place) == 0
    assert send(service, place, 0, ARCHIVE[:100]).headers["upload-offset"] == "100"
    early = service.request("PUT", "/v1/models/digits", json={"upload": place, "max_batch": 4})
    assert early.status_code == 409
    assert "100 of 10240 bytes" in early.json()["error"]
    assert send(service, place, 100, ARCHIVE[100:]).status_code == 204
    assert offset(service, place) == len(ARCHIVE)
    answer = service.request("PUT", "/v1/models/digits", json={"upload": place, "max_batch": 4})
    assert answer.status_code == 202, answer.text
    assert service.catalog.uploads == [ARCHIVE]
    ((_, spec, source),) = service.catalog.registered
    assert (spec.max_batch, getattr(source, "filename", "")) == (4, "model.zip")
    status = service.request("GET", answer.json()["status_url"]).json()
    assert status["archive_sha256"] == hashlib.sha256(ARCHIVE).hexdigest()
    assert service.request("HEAD", place).status_code == 404
    assert list((service.upload_dir / "partial").iterdir()) == []


def announce(service: Service, said: Any, length: int = len(ARCHIVE), **options: Any) -> httpx.Response:
    headers = {"upload-length": str(length), **options.pop("headers", {})}
    return service.request("POST", "/v1/uploads", headers=headers, json=said, **options)


def test_what_an_upload_is_to_be_is_checked_before_any_of_it_is_sent(service: Service) -> None:
    assert announce(service, {"model": "digits", "spec": {"max_batch": 4}}).status_code == 201
    assert announce(service, {"model": "digits"}).status_code == 201
    assert service.catalog.announced == [("digits", len(ARCHIVE))] * 2
    for said, word in (
        ({"model": "../x"}, "model name"),
        ({"model": "digits", "spec": {"max_batch": 0}}, "spec.max_batch"),
        ({"model": "digits", "spec": {"inputs": {"x": {"dtype": "complex7", "shape": []}}}}, "spec.inputs"),
        ({"model": "digits", "buckets": [1]}, "'buckets'"),
        ({"spec": {}}, "'model'"),
        ([], "JSON object"),
    ):
        refused = announce(service, said)
        assert refused.status_code == 400, said
        assert word in refused.json()["error"]
    service.catalog.register_error = QuotaExceeded("model 'digits' has 3 versions")
    assert announce(service, {"model": "digits"}).status_code == 507
    assert announce(service, {"model": "digits"}, length=2**40).status_code == 413
    assert len(list((service.upload_dir / "partial").glob("*.json"))) == 2, "nothing is begun that was refused"


def test_a_tus_client_that_says_nothing_of_a_model_begins_as_ever(service: Service) -> None:
    headers = {"upload-length": "3", "content-type": "application/offset+octet-stream"}
    answer = service.request("POST", "/v1/uploads", headers=headers, content=b"abc")
    assert (answer.status_code, answer.headers["upload-offset"]) == (201, "0")
    assert service.catalog.announced == []


def test_who_may_not_register_a_model_begins_no_upload_for_it(tmp_path: Path) -> None:
    (tmp_path / "uploads").mkdir()
    tokens = (entry("ci", "manage", models=("ranker-*",)),)
    service = Service(tmp_path / "uploads", tokens=tokens, audit_log=tmp_path / "audit")
    answers = [announce(service, {"model": name}, headers=bearer("ci")).status_code for name in ("ranker-2", "digits")]
    assert answers == [201, 403]
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [(each.get("model"), each["result"]) for each in lines if each["event"] == "answered"] == [
        ("ranker-2", "201"),
        ("digits", "403"),
    ]
    service.app.gate.audit.close()


def test_a_form_that_would_be_refused_is_refused_before_its_archive_is_read(service: Service) -> None:
    service.catalog.register_error = QuotaExceeded("model 'digits' has 3 versions")
    n_read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal n_read
        n_read += 1
        yield b"--b"

    kind = "multipart/form-data; boundary=b"
    answer = service.request("PUT", "/v1/models/digits", content=body(), headers={"content-type": kind})
    assert (answer.status_code, n_read) == (507, 0)


def test_a_damaged_upload_keeps_nobody_from_beginning_another(service: Service) -> None:
    place = begin(service)
    (service.upload_dir / "partial" / f"{place.rpartition('/')[2]}.part").unlink()
    (service.upload_dir / "partial" / "x.json").write_text("{")
    begin(service)


def test_an_upload_goes_on_where_it_is_and_nowhere_else(service: Service) -> None:
    place = begin(service)
    assert send(service, place, 0, ARCHIVE[:500]).status_code == 204
    for wrong in (0, 499, 501):
        refused = send(service, place, wrong, b"x")
        assert refused.status_code == 409
        assert "Upload-Offset 500" in refused.json()["error"]
    assert send(service, place, 500, ARCHIVE[500:] + b"x").status_code == 413
    assert offset(service, place) == 500
    assert send(service, place, 500, ARCHIVE[500:]).status_code == 204


def test_another_file_than_announced_is_refused(service: Service) -> None:
    place = begin(service, **{"repr-digest": digest(b"another")})
    send(service, place, 0, ARCHIVE)
    refused = service.request("PUT", "/v1/models/digits", json={"upload": place})
    assert refused.status_code == 400
    assert "it changed on its way" in refused.json()["error"]
    assert service.catalog.registered == []
    assert offset(service, place) == len(ARCHIVE)


def test_an_upload_can_be_given_up(service: Service) -> None:
    place = begin(service)
    assert service.request("DELETE", place).status_code == 204
    assert service.request("DELETE", place).status_code == 404
    assert send(service, place, 0, b"x").status_code == 404


@pytest.mark.parametrize("name", ["x", "..%2f..%2fetc", "a" * 22, "%00" * 22, "A" * 5000])
def test_names_of_no_upload_lead_nowhere(service: Service, name: str) -> None:
    assert service.request("GET", f"/v1/uploads/{name}").status_code == 404
    assert service.request("PUT", "/v1/models/m", json={"upload": name[:100]}).status_code == 404


def test_what_is_no_upload_is_refused(service: Service) -> None:
    for headers in ({}, {"upload-length": "-1"}, {"upload-length": "many"}, {"upload-length": "9" * 30}):
        assert service.request("POST", "/v1/uploads", headers=headers).status_code == 400
    assert service.request("POST", "/v1/uploads", headers={"upload-length": str(2**40)}).status_code == 413
    for headers in ({"repr-digest": "md5=:AA==:"}, {"upload-metadata": "filename !"}):
        answer = service.request("POST", "/v1/uploads", headers={"upload-length": "1", **headers})
        assert answer.status_code == 400
    place = begin(service)
    assert service.request("PATCH", place, content=b"x", headers={"upload-offset": "0"}).status_code == 400
    assert service.request("PATCH", place, content=b"x", headers=PIECE).status_code == 400
    assert service.request("PUT", "/v1/models/m", json={"upload": 3}).status_code == 400


def test_unfinished_uploads_are_bounded(service: Service) -> None:
    places = [begin(service, 10) for _ in range(12)]
    refused = service.request("POST", "/v1/uploads", headers={"upload-length": "10"})
    assert refused.status_code == 409
    assert "12 uploads are unfinished, 12 of them yours" in refused.json()["error"]
    service.request("DELETE", places[0])
    begin(service, 10)


def test_the_unfinished_uploads_of_one_leave_room_for_others(tmp_path: Path) -> None:
    (tmp_path / "uploads").mkdir()
    names = ["greedy", "second", "third", "fourth", "fifth", "sixth"]
    service = Service(tmp_path / "uploads", tokens=tuple(entry(name, "manage") for name in names))

    def begun(name: str, length: int = 10) -> int:
        headers = {"upload-length": str(length), **bearer(name)}
        return service.request("POST", "/v1/uploads", headers=headers).status_code

    assert [begun("greedy") for _ in range(13)] == [201] * 12 + [409]
    assert [begun(name) for name in names[1:]] == [201] * 4 + [409]
    assert begun("second") == 409

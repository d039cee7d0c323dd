"""Uploads that go on after a lost connection, registrations that may be sent again, and what is checked of both."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from server.store.errors import QuotaExceeded, StoreFull
from server.web.digests import read_digest
from server.web.errors import BodyTooLarge, ClientGone, RegistrationRefused, UploadConflict, UploadNotFound
from server.web.partial_uploads import PartialUpload, PartialUploads
from tests.web.rights import bearer, entry
from tests.web.scripted import Service

ARCHIVE = bytes(range(256)) * 40
PIECE = {"content-type": "application/offset+octet-stream"}


def digest(content: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def begin(service: Service, length: int = len(ARCHIVE), **headers: str) -> str:
    answer = service.request("POST", "/v1/uploads", headers={"upload-length": str(length), **headers})
    assert answer.status_code == 201, answer.text
    assert answer.headers["tus-resumable"] == "1.0.0"
    return str(answer.headers["location"])


def send(service: Service, place: str, offset: int, piece: bytes) -> httpx.Response:
    return service.request("PATCH", place, content=piece, headers={**PIECE, "upload-offset": str(offset)})


def offset(service: Service, place: str) -> int:
    answer = service.request("HEAD", place)
    assert answer.status_code == 204
    return int(answer.headers["upload-offset"])


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


def test_what_was_registered_already_is_told_again_where_no_more_would_be_taken(service: Service) -> None:
    assert register(service, **{"idempotency-key": "k"}).json()["version"] == 1
    service.catalog.register_error = QuotaExceeded("model 'digits' has 1 version")
    assert register(service, **{"idempotency-key": "k"}).json()["version"] == 1
    assert register(service, **{"idempotency-key": "another"}).status_code == 507


def test_a_damaged_upload_keeps_nobody_from_beginning_another(service: Service) -> None:
    place = begin(service)
    (service.upload_dir / "partial" / f"{place.rpartition('/')[2]}.part").unlink()
    (service.upload_dir / "partial" / "x.json").write_text("{")
    begin(service)


def test_an_upload_that_the_disk_has_no_room_for_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = PartialUploads(tmp_path / "partial", max_bytes=lambda: 2**20)
    # Room for 1,000 bytes in all.
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=10, f_frsize=100))
    with pytest.raises(StoreFull, match="No space left"):
        uploads.begin(1_001, filename="m.zip", sha256=None, owner="local")
    begun = uploads.begin(600, filename="m.zip", sha256=None, owner="local")
    with pytest.raises(StoreFull):
        uploads.begin(500, filename="m.zip", sha256=None, owner="local")
    # What has come of one is on the disk, which knows of it.
    asyncio.run(uploads.append(begun.id, 0, pieces(b"a" * 400)))
    uploads.begin(500, filename="m.zip", sha256=None, owner="local")


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


def test_the_bytes_of_one_leave_room_for_others(tmp_path: Path) -> None:
    uploads = PartialUploads(tmp_path, max_bytes=lambda: 100)
    for _ in range(3):
        uploads.begin(100, filename="m.zip", sha256=None, owner="greedy")
    with pytest.raises(UploadConflict):
        uploads.begin(1, filename="m.zip", sha256=None, owner="greedy")
    uploads.begin(100, filename="m.zip", sha256=None, owner="other")
    with pytest.raises(UploadConflict):
        uploads.begin(1, filename="m.zip", sha256=None, owner="third")


# The files themselves.


async def pieces(*chunks: bytes, lost: bool = False) -> AsyncIterator[bytes]:
    for chunk in chunks:
        await asyncio.sleep(0)
        yield chunk
    if lost:
        raise ClientGone("gone")


def test_what_came_before_the_connection_was_lost_stays_over_a_restart(tmp_path: Path) -> None:
    before = PartialUploads(tmp_path / "partial", max_bytes=lambda: 2**20)
    upload = before.begin(1000, filename="m.zip", sha256=None, owner="local")
    with pytest.raises(ClientGone):
        asyncio.run(before.append(upload.id, 0, pieces(b"a" * 300, b"b" * 100, lost=True)))
    after = PartialUploads(tmp_path / "partial", max_bytes=lambda: 2**20)
    assert after.look_up(upload.id).offset == 400
    assert asyncio.run(after.append(upload.id, 400, pieces(b"c" * 600))).offset == 1000

    async def take() -> bytes:
        async with after.taken(upload.id) as whole:
            return whole.path.read_bytes()

    assert asyncio.run(take()) == b"a" * 300 + b"b" * 100 + b"c" * 600
    with pytest.raises(UploadNotFound):
        after.look_up(upload.id)


def test_an_upload_that_could_not_be_registered_is_there_again(tmp_path: Path) -> None:
    uploads = PartialUploads(tmp_path / "partial", max_bytes=lambda: 2**20)
    upload = uploads.begin(3, filename="m.zip", sha256=None, owner="local")

    async def fail() -> None:
        await uploads.append(upload.id, 0, pieces(b"abc"))
        async with uploads.taken(upload.id):
            with pytest.raises(UploadConflict, match="another request"):
                await uploads.append(upload.id, 3, pieces(b"d"))
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        asyncio.run(fail())
    assert uploads.look_up(upload.id).offset == 3


def test_uploads_that_nobody_goes_on_with_are_removed(tmp_path: Path) -> None:
    uploads = PartialUploads(tmp_path / "partial", max_bytes=lambda: 100)
    old, new = (uploads.begin(100, filename="m.zip", sha256=None, owner="local") for _ in range(2))
    day_and_more = tmp_path.stat().st_mtime - 25 * 3600
    os.utime(tmp_path / "partial" / f"{old.id}.part", (day_and_more, day_and_more))
    (tmp_path / "partial" / "leftover.part").touch()
    for _ in range(2):
        uploads.begin(100, filename="m.zip", sha256=None, owner="local")
    assert not (tmp_path / "partial" / "leftover.part").exists()
    with pytest.raises(UploadNotFound):
        uploads.look_up(old.id)
    assert uploads.look_up(new.id).offset == 0
    with pytest.raises(UploadConflict):  # three times max_bytes of one owner
        uploads.begin(100, filename="m.zip", sha256=None, owner="local")
    with pytest.raises(BodyTooLarge):
        uploads.begin(101, filename="m.zip", sha256=None, owner="local")


def test_they_are_removed_by_time_too_but_not_one_that_is_being_written_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uploads = PartialUploads(tmp_path / "partial", max_bytes=lambda: 100)
    kept, left = (uploads.begin(100, filename="m.zip", sha256=None, owner="local") for _ in range(2))

    def leave_alone(upload: PartialUpload) -> None:
        day_and_more = tmp_path.stat().st_mtime - 25 * 3600
        os.utime(tmp_path / "partial" / f"{upload.id}.part", (day_and_more, day_and_more))

    def is_there(upload: PartialUpload) -> bool:
        return (tmp_path / "partial" / f"{upload.id}.part").exists()

    async def slow() -> AsyncIterator[bytes]:
        yield b"abc"
        leave_alone(kept)
        await asyncio.sleep(0)
        while is_there(left):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)

    async def test() -> None:
        clearing = asyncio.create_task(uploads.keep_clear(every_s=0.0))
        await uploads.append(left.id, 0, pieces(b"1234567"))
        leave_alone(left)
        assert (await uploads.append(kept.id, 0, slow())).offset == 3
        clearing.cancel()
        await asyncio.wait({clearing})

    caplog.set_level("INFO")
    asyncio.run(test())
    assert (is_there(kept), is_there(left)) == (True, False)
    assert "7 bytes" in caplog.text


def test_a_disk_that_refuses_to_remove_them_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    uploads = PartialUploads(tmp_path / "partial", max_bytes=lambda: 100)
    n_tried = 0

    def refuse() -> int:
        nonlocal n_tried
        n_tried += 1
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(uploads, "remove_abandoned", refuse)

    async def test() -> None:
        clearing = asyncio.create_task(uploads.keep_clear(every_s=0.0))
        while n_tried < 3:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        clearing.cancel()
        await asyncio.wait({clearing})

    asyncio.run(test())
    assert "Read-only file system" in caplog.text


# Digests and keys of a form.


def register(service: Service, archive: bytes = ARCHIVE, *, spec: str = "{}", part: Any = None, **headers: str) -> Any:
    files = [
        ("spec", (None, spec, "application/json")),
        ("archive", ("m.zip", archive, "application/zip", {} if part is None else {"Repr-Digest": part})),
    ]
    return service.request("PUT", "/v1/models/digits", files=files, headers=headers)


def test_the_digest_of_the_archive_is_recorded_and_checked(service: Service) -> None:
    answer = register(service, part=digest(ARCHIVE))
    assert answer.status_code == 202
    status = service.request("GET", answer.json()["status_url"]).json()
    assert status["archive_sha256"] == hashlib.sha256(ARCHIVE).hexdigest()
    refused = register(service, part=digest(ARCHIVE[1:]))
    assert refused.status_code == 400
    assert "it changed on its way" in refused.json()["error"]
    assert len(service.catalog.registered) == 1
    assert [path.name for path in service.upload_dir.iterdir()] == []


def test_digests_that_are_none_are_refused() -> None:
    good = digest(b"x")
    assert read_digest(None) is None
    assert read_digest(f"sha-512=:AAAA:, {good}".encode()) == hashlib.sha256(b"x").hexdigest()
    for header in (b"", b"sha-256", b"sha-256=AAAA", b"sha-256=:AAAA:", b"sha-256=:!!!!:", b"md5=:AAAA:", b"\xff"):
        with pytest.raises(RegistrationRefused, match="sha-256=:BASE64:"):
            read_digest(header)


def test_the_same_key_and_content_is_the_same_version(service: Service) -> None:
    answers = [register(service, **{"idempotency-key": '"8e03978e"'}) for _ in range(3)]
    assert [answer.json()["version"] for answer in answers] == [1, 1, 1]
    assert service.catalog.uploads == [ARCHIVE]
    assert [path.name for path in service.upload_dir.iterdir()] == []
    assert register(service).json()["version"] == 2
    assert register(service, **{"idempotency-key": "another"}).json()["version"] == 3


def test_the_same_key_with_another_content_is_refused(service: Service) -> None:
    assert register(service, **{"idempotency-key": "k"}).status_code == 202
    for changed in (register(service, b"other", **{"idempotency-key": "k"}),
                    register(service, spec='{"max_batch": 2}', **{"idempotency-key": "k"}),
                    service.request("PUT", "/v1/models/digits", json={"import_path": "models.digits:predict"},
                                    headers={"idempotency-key": "k"})):  # fmt: skip
        assert changed.status_code == 409
        assert "was used for version 1" in changed.json()["error"]
    assert len(service.catalog.registered) == 1
    assert [path.name for path in service.upload_dir.iterdir()] == []


def test_a_key_is_one_models(service: Service) -> None:
    said = {"json": {"import_path": "models.digits:predict"}, "headers": {"idempotency-key": "k"}}
    assert service.request("PUT", "/v1/models/a", **said).status_code == 202
    assert service.request("PUT", "/v1/models/b", **said).status_code == 202
    assert service.request("PUT", "/v1/models/a", **said).json()["version"] == 1
    assert len(service.catalog.registered) == 2


def test_an_upload_that_was_registered_under_a_key_is_found_by_it(service: Service) -> None:
    place = begin(service)
    send(service, place, 0, ARCHIVE)
    said = {"json": {"upload": place, "max_batch": 4}, "headers": {"idempotency-key": "k"}}
    assert service.request("PUT", "/v1/models/digits", **said).json()["version"] == 1
    assert service.request("PUT", "/v1/models/digits", **said).json()["version"] == 1
    other = {**said, "json": {"upload": place, "max_batch": 5}}
    assert service.request("PUT", "/v1/models/digits", **other).status_code == 409
    assert service.request("PUT", "/v1/models/digits", json=said["json"]).status_code == 404


@pytest.mark.parametrize("key", ["", '""', "x" * 256, "caf\u00e9"])
def test_keys_that_are_none_are_refused(service: Service, key: str) -> None:
    answer = service.request(
        "PUT", "/v1/models/a", json={"import_path": "models.digits:predict"}, headers={"idempotency-key": key.encode()}
    )
    assert answer.status_code == 400

"""Registrations that may be sent again under one key, and archives whose digest is checked."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from server.store.errors import QuotaExceeded
from server.web.digests import read_digest
from server.web.errors import RegistrationRefused
from tests.web.scripted import Service
from tests.web.uploads import ARCHIVE, begin, digest, send


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


def test_what_was_registered_already_is_told_again_where_no_more_would_be_taken(service: Service) -> None:
    assert register(service, **{"idempotency-key": "k"}).json()["version"] == 1
    service.catalog.register_error = QuotaExceeded("model 'digits' has 1 version")
    assert register(service, **{"idempotency-key": "k"}).json()["version"] == 1
    assert register(service, **{"idempotency-key": "another"}).status_code == 507


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

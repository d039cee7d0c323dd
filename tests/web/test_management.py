"""Registration, inspection, activation and deletion; and who may do them."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from server.build.source import ArchiveSource, ImportSource
from server.settings import Settings
from server.store.errors import StoreUnwritable, unwritable
from server.store.records import State, VersionRecord
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel
from tests.web.wire import Wire, pieces

SPEC = {"inputs": {"x": {"dtype": "float32", "shape": [3]}}, "max_batch": 16}


def upload(
    service: Service, *, spec: Any = SPEC, archive: bytes = b"PK archive", name: str = "digits", **options: Any
) -> httpx.Response:
    files: list[Any] = [("archive", ("model.tar.gz", archive, "application/gzip"))]
    if spec is not None:
        files.insert(0, ("spec", (None, spec if isinstance(spec, bytes) else json.dumps(spec), "application/json")))
    return service.request("PUT", "/v1/models/digits", files=files, **options)


def test_an_archive_is_registered_with_its_specification(service: Service) -> None:
    answer = upload(service)
    assert answer.status_code == 202
    assert answer.json() == {
        "model": "digits",
        "version": 1,
        "state": "BUILDING",
        "status_url": "/v1/models/digits/versions/1/status",
    }
    ((name, spec, source),) = service.catalog.registered
    assert name == "digits"
    assert spec.max_batch == 16
    assert isinstance(source, ArchiveSource)
    assert source.filename == "model.tar.gz"
    assert source.path.parent == service.upload_dir
    assert service.catalog.uploads == [b"PK archive"]
    status = service.request("GET", answer.json()["status_url"])
    assert status.json()["state"] == "BUILDING"


def test_an_archive_needs_no_specification(service: Service) -> None:
    assert upload(service, spec=None).status_code == 202
    assert service.catalog.registered[0][1].signature == "serving_default"


def test_a_large_archive_arrives_whole(service: Service) -> None:
    archive = bytes(range(256)) * 4 * 4096 * 3 + b"\r\n--not-a-boundary\r\n"
    assert upload(service, archive=archive).status_code == 202
    assert service.catalog.uploads == [archive]


def test_waiting_answers_when_the_version_is_available(service: Service) -> None:
    answer = upload(service, params={"wait": "true"})
    assert answer.status_code == 200
    assert answer.json()["state"] == "AVAILABLE"


def test_waiting_tells_why_a_build_failed(service: Service) -> None:
    reason = "op Unique (f.py:3) has no converter"
    service.catalog.builds_end_as = VersionRecord(model="", version=0, state=State.FAILED, reason=reason)
    answer = upload(service, params={"wait": "true"})
    assert answer.status_code == 400
    assert answer.json() == {"error": reason, "model": "digits", "version": 1, "state": "FAILED"}


def test_an_import_path_is_registered_with_options_beside_or_under_spec(service: Service) -> None:
    flat = service.request("PUT", "/v1/models/a", json={"import_path": "models.digits:predict", "max_batch": 4})
    under = service.request("PUT", "/v1/models/b", json={"import_path": "models.a_b.c:f", "spec": {"max_batch": 4}})
    assert (flat.status_code, under.status_code) == (202, 202)
    assert [(n, s.max_batch, source) for n, s, source in service.catalog.registered] == [
        ("a", 4, ImportSource("models.digits:predict")),
        ("b", 4, ImportSource("models.a_b.c:f")),
    ]


JSON_REFUSALS: list[tuple[Any, int, str]] = [
    ({"import_path": "os:system"}, 403, "outside of the packages that may be imported (allowed are models)"),
    ({"import_path": "models_evil.x:f"}, 403, "outside of the packages"),
    ({"import_path": "models.digits"}, 400, "import_path 'models.digits' is not of the form MODULE:FUNCTION"),
    ({"import_path": "models.digits:f\n"}, 400, "is not of the form MODULE:FUNCTION"),
    ({"import_path": "models/../os:f"}, 400, "is not of the form MODULE:FUNCTION"),
    ({"import_path": 3}, 400, "the registration names no 'import_path'"),
    ({}, 400, "the registration names no 'import_path'"),
    ({"source": "def f(x): return x"}, 403, "registration from 'source' is not enabled on this server"),
    ([1], 400, "the body must be a JSON object, got an array"),
    (b"{", 400, "the body: the body is not JSON"),
    (b"", 400, "the body: the body is empty"),
    (b"[" * 20_000, 400, "the body: the body is"),
    ({"import_path": "models.a:f", "spec": {}, "max_batch": 3}, 400, "or beside it, not both: ['max_batch']"),
    ({"import_path": "models.a:f", "max_batch": 0}, 400, "spec.max_batch: Input should be greater than or equal to 1"),
    ({"import_path": "models.a:f", "spec": [1]}, 400, "spec: Input should be"),
    ({"import_path": "models.a:f", "buckts": [1]}, 400, "spec.buckts: Extra inputs are not permitted"),
    ({"import_path": "models.a:f", "inputs": {"x": {"dtype": "float32", "shape": [None]}}}, 400, "largest size"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "code", "sentence"), JSON_REFUSALS)
def test_a_wrong_json_registration_gets_its_code_and_sentence(
    service: Service, body: Any, code: int, sentence: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = service.request("PUT", "/v1/models/m", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == code
    assert sentence in answer.json()["error"]
    assert service.catalog.registered == []


def multipart(*parts: tuple[str, bytes], end: bytes = b"--B--\r\n") -> bytes:
    """Write a multipart body by hand. The boundary is B."""
    return b"".join(b"--B\r\n%s\r\n\r\n%s\r\n" % (head.encode(), body) for head, body in parts) + end


FORM = "multipart/form-data; boundary=B"
ARCHIVE_PART = 'Content-Disposition: form-data; name="archive"; filename="a"'
SPEC_PART = 'Content-Disposition: form-data; name="spec"'
FORM_REFUSALS: list[tuple[str, bytes, str, str]] = [
    ("no boundary", b"", "multipart/form-data", "names no boundary"),
    ("no archive", multipart((SPEC_PART, b"{}")), FORM, "the form has no part 'archive'"),
    ("cut short", multipart((ARCHIVE_PART, b"abc"), end=b""), FORM, "the upload was cut short"),
    ("empty", b"", FORM, "the upload was cut short"),
    ("garbage", b"garbage", FORM, "the body is not multipart/form-data"),
    ("other part", multipart(('Content-Disposition: form-data; name="evil"', b"")), FORM, "part 'evil' is"),
    ("no name", multipart(("X: y", b"")), FORM, "part '' is unknown"),
    ("twice", multipart((ARCHIVE_PART, b"a"), (ARCHIVE_PART, b"b")), FORM, "more than one part 'archive'"),
    ("spec twice", multipart((SPEC_PART, b"{}"), (SPEC_PART, b"{}")), FORM, "more than one part 'spec'"),
    ("spec no json", multipart((SPEC_PART, b"{"), (ARCHIVE_PART, b"a")), FORM, "spec: the body is not JSON"),
    ("spec last and wrong", multipart((ARCHIVE_PART, b"a"), (SPEC_PART, b'{"max_batch": 0}')), FORM, "spec.max_batch"),
    ("long headers", multipart(("X: " + "y" * 20_000, b"")), FORM, "header"),
    ("other type", b"x", "text/plain", "Content-Type 'text/plain' is no registration"),
    ("long boundary", b"x", "multipart/form-data; boundary=" + "b" * 5_000, "boundary"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "kind", "sentence"), [c[1:] for c in FORM_REFUSALS], ids=[c[0] for c in FORM_REFUSALS]
)
def test_a_wrong_upload_gets_a_sentence_and_leaves_no_file(
    service: Service, body: bytes, kind: str, sentence: str
) -> None:
    answer = service.request("PUT", "/v1/models/m", content=body, headers={"Content-Type": kind})
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]
    assert service.catalog.registered == []
    assert list(service.upload_dir.iterdir()) == []


def test_an_upload_byte_by_byte_is_the_same_upload(service: Service) -> None:
    body = multipart((SPEC_PART, b'{"max_batch": 2}'), (ARCHIVE_PART, b"\r\n--A\r\n\x00"))
    content = pieces(*(body[i : i + 1] for i in range(len(body))))
    kind = {"Content-Type": FORM}
    assert service.request("PUT", "/v1/models/m", content=content, headers=kind).status_code == 202
    assert service.catalog.uploads == [b"\r\n--A\r\n\x00"]


def test_an_archive_over_the_limit_is_refused_while_it_arrives_and_leaves_no_file(upload_dir: Path) -> None:
    service = Service(upload_dir, max_archive_bytes=1_000)
    assert upload(service, archive=b"x" * 1_000).status_code == 202
    answer = upload(service, archive=b"x" * 1_001)
    assert answer.status_code == 413
    assert answer.json()["error"] == "the archive is over the limit of 1000 bytes (max_archive_bytes)"
    assert list(upload_dir.iterdir()) == []
    announced = Wire(
        service,
        "PUT",
        "/v1/models/m",
        [(b"content-type", FORM.encode()), (b"content-length", b"999999999")],
    )
    asyncio.run(asyncio.wait_for(announced.run(), 60))
    assert announced.status == 413


def test_a_specification_over_the_limit_is_refused(service: Service) -> None:
    assert upload(service, spec=b"[" + b" " * 5 * 2**20).status_code == 413


def test_a_wrong_specification_is_refused_before_the_archive_is_read(service: Service) -> None:
    wire = Wire(service, "PUT", "/v1/models/m", [(b"content-type", FORM.encode())])

    async def scenario() -> None:
        wire.put(
            multipart((SPEC_PART, b'{"max_batch": 0}'), end=b"--B\r\n" + ARCHIVE_PART.encode() + b"\r\n\r\n"), more=True
        )
        await asyncio.wait_for(wire.run(), 60)

    asyncio.run(scenario())
    assert wire.status == 400
    assert list(service.upload_dir.iterdir()) == []


def test_a_caller_that_leaves_during_its_upload_leaves_no_file(service: Service) -> None:
    wire = Wire(service, "PUT", "/v1/models/m", [(b"content-type", FORM.encode())])

    async def scenario() -> None:
        wire.put(b"--B\r\n" + ARCHIVE_PART.encode() + b"\r\n\r\n" + b"x" * 2**21, more=True)
        wire.leave()
        await asyncio.wait_for(wire.run(), 60)

    asyncio.run(scenario())
    assert wire.sent == []
    assert list(service.upload_dir.iterdir()) == []
    assert service.catalog.registered == []


def test_a_registration_that_the_store_refuses_leaves_no_file(service: Service) -> None:
    service.catalog.register_error = StoreUnwritable("the disk is full")
    answer = upload(service)
    assert (answer.status_code, answer.json()) == (503, {"error": "the disk is full"})
    assert list(service.upload_dir.iterdir()) == []


def test_a_disk_that_refuses_the_archive_is_told(service: Service, upload_dir: Path) -> None:
    service.catalog.new_upload_path = lambda: upload_dir / "missing" / "x"  # type: ignore[method-assign]
    answer = upload(service)
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("the archive can't be written (No such file or directory): check")


def test_a_full_disk_is_503_and_says_what_to_do(service: Service) -> None:
    service.catalog.register_error = unwritable("the version", OSError(errno.ENOSPC, "No space left on device"))
    answer = upload(service)
    assert answer.status_code == 503
    assert answer.json() == {"error": "the version can't be written (No space left on device): free some space"}
    assert list(service.upload_dir.iterdir()) == []


def test_who_waits_for_a_build_that_the_stop_cuts_off_is_told_to_come_again(service: Service) -> None:
    service.catalog.builds_end_as = VersionRecord(
        model="", version=0, state=State.BUILDING, reason="the server is stopping"
    )
    answer = upload(service, params={"wait": "true"})
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"].endswith("is not ready: the server is stopping")


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "-rf", "a b", "a\0b", "x" * 101, "a\nb", "é", "a;b", "a\\b"])
def test_a_name_that_is_not_allowed_is_refused(service: Service, name: str) -> None:
    wire = Wire(service, "PUT", f"/v1/models/{name}")
    wire.put(b"{}")
    asyncio.run(wire.run())
    assert wire.status == 400
    assert "is not allowed: use 1 to 100 letters" in json.loads(wire.sent[1]["body"])["error"]
    assert service.catalog.registered == []


def test_a_name_with_a_slash_is_refused_as_a_name(service: Service) -> None:
    answer = service.request("PUT", "/v1/models/a%2F..%2Fb", json={"import_path": "models.a:f"})
    assert answer.status_code == 400
    assert "model name 'a/../b' is not allowed" in answer.json()["error"]


def test_versions_are_listed_inspected_activated_and_deleted(service: Service) -> None:
    service.catalog.serve(ScriptedModel("sum", 4))
    service.catalog.add("sum", 5, State.FAILED, reason="op X has no converter")
    listed = service.request("GET", "/v1/models").json()["models"]
    assert [(entry["version"], entry["state"], entry["active"]) for entry in listed] == [
        (3, "AVAILABLE", False),
        (4, "AVAILABLE", True),
        (5, "FAILED", False),
    ]
    assert service.request("GET", "/v1/models/sum/versions/5/status").json()["reason"] == "op X has no converter"
    assert service.request("GET", "/v1/models/sum/versions/3/certificate").json() == {"looped": [], "version": 3}
    assert service.request("GET", "/V1/Models/sum/Certificate").json() == {"looped": [], "version": 4}
    assert service.request("GET", "/v1/models/sum/versions/4/costs").json() == {"modes": [], "version": 4}
    assert service.request("GET", "/v1/models/sum/costs").json() == {"modes": [], "version": 4}
    assert service.request("POST", "/v1/models/sum/versions/3:Activate").json()["active"] is True
    assert service.request("POST", "/v1/models/sum/versions/5:activate").status_code == 409
    assert service.request("DELETE", "/v1/models/sum/versions/4").status_code == 204
    assert service.request("DELETE", "/v1/models/sum").status_code == 204
    assert service.request("GET", "/v1/models").json() == {"models": []}


def test_shadow_is_begun_shown_and_ended_by_its_share(service: Service) -> None:
    service.catalog.serve(ScriptedModel("sum", 4))
    path = "/v1/models/sum/versions/3"
    assert service.request("POST", path + ":shadow", json={"share": 0.1}).json() == {"version": 3, "share": 0.1}
    assert service.request("GET", path + "/shadow").json() == {"version": 3, "share": 0.1}
    assert service.request("POST", path + ":Shadow", json={"share": 0}).json()["share"] == 0
    assert service.request("POST", "/v1/models/sum/versions/4:shadow", json={"share": 1}).status_code == 409
    assert service.request("GET", "/v1/models/sum/versions/9/shadow").status_code == 404
    for body in ({}, {"share": 1.1}, {"share": True}, {"share": "1"}, {"share": 0.1, "more": 1}, [0.1]):
        assert service.request("POST", path + ":shadow", json=body).status_code == 400


def test_series_of_a_deleted_version_go_with_it(service: Service) -> None:
    service.predict({"instances": [[1, 2, 3]]})
    assert 'model="sum"' in service.request("GET", "/metrics").text
    service.request("DELETE", "/v1/models/sum")
    assert 'model="sum"' not in service.request("GET", "/metrics").text


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("DELETE", "/v1/models/nobody", 404),
        ("DELETE", "/v1/models/sum/versions/9", 404),
        ("DELETE", "/v1/models/sum/versions/x", 400),
        ("POST", "/v1/models/sum/versions/9:activate", 404),
        ("GET", "/v1/models/nobody/versions/1/status", 404),
        ("GET", "/v1/models/sum/versions/9/certificate", 404),
        ("GET", "/v1/models/nobody/costs", 404),
        ("GET", "/v1/modelz", 404),
        ("GET", "/", 404),
        ("PATCH", "/v1/models/sum", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v2/health/live", 405),
        ("PUT", "/v1/models/sum?wait=perhaps", 400),
    ],
)
def test_what_is_not_there_is_said_in_the_same_form(service: Service, method: str, path: str, code: int) -> None:
    answer = service.request(method, path)
    assert answer.status_code == code
    assert list(answer.json()) == ["error"]
    assert answer.json()["error"]
    assert answer.headers["x-request-id"]
    assert (code == 405) == ("allow" in answer.headers)


def test_an_exception_of_ours_is_500_with_the_request_id_only(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.catalog.models = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    answer = service.request("GET", "/v1/models", headers={"X-Request-Id": "r9"})
    assert (answer.status_code, answer.json()) == (
        500,
        {"error": "internal error: the server's log says more under request id r9"},
    )
    assert "ZeroDivisionError" in caplog.text


def test_settings_that_change_hold_for_the_next_request(service: Service) -> None:
    assert upload(service).status_code == 202
    service.app.change(Settings(token=SecretStr("secret"), max_archive_bytes=4, max_instances=1))
    assert upload(service).status_code == 401
    answer = upload(service, headers={"Authorization": "Bearer secret"})
    assert (answer.status_code, "max_archive_bytes" in answer.json()["error"]) == (413, True)
    body = {"instances": [[1, 2, 3]] * 2}
    assert service.request("POST", "/v1/models/sum:predict", json=body).status_code == 413
    service.app.change(Settings())
    assert service.request("POST", "/v1/models/sum:predict", json=body).status_code == 200
    assert upload(service).status_code == 202

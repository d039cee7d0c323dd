"""Who may manage models: without a token whoever is local, with one whoever has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.scripted import LOCAL, REMOTE, Service
from tests.web.scripted_model import ScriptedModel

MANAGED = [
    ("GET", "/v1/models"),
    ("PUT", "/v1/models/m"),
    ("GET", "/v1/models/sum/versions/3/status"),
    ("GET", "/v1/models/sum/versions/3/certificate"),
    ("GET", "/v1/models/sum/certificate"),
    ("GET", "/v1/models/sum/versions/3/costs"),
    ("GET", "/v1/models/sum/costs"),
    ("POST", "/v1/models/sum/versions/3:activate"),
    ("DELETE", "/v1/models/sum/versions/3"),
    ("DELETE", "/v1/models/sum"),
]


@pytest.mark.parametrize(("method", "path"), MANAGED)
def test_without_a_token_only_local_callers_manage(service: Service, method: str, path: str) -> None:
    for options, words in (
        ({"client": REMOTE}, "only callers on this machine"),
        ({"headers": {"Origin": "https://evil.example"}}, "browsers (requests with an Origin)"),
        ({"headers": {"X-Forwarded-For": "203.0.113.7"}}, "callers behind a proxy"),
        ({"client": ("::ffff:203.0.113.7", 1)}, "only callers on this machine"),
        ({"client": ("unix", 1)}, "only callers on this machine"),
    ):
        answer = service.request(method, path, **options)  # type: ignore[arg-type]
        assert answer.status_code == 403
        assert words in answer.json()["error"]
    assert ("sum", 3) in service.catalog.records


def test_every_way_of_being_local_counts(service: Service) -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"):
        assert service.request("GET", "/v1/models", client=(host, 1)).status_code == 200


@pytest.mark.parametrize(("method", "path"), MANAGED)
def test_with_a_token_nobody_manages_without_it(upload_dir: Path, method: str, path: str) -> None:
    service = Service(upload_dir, token="s3cret")
    service.catalog.serve(ScriptedModel("sum", 3))
    wrong: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic s3cret"},
        {"Authorization": "s3cret"},
        {"X-API-Key": "s3cre"},
        {"X-API-Key": ""},
    ]
    for headers in wrong:
        answer = service.request(method, path, headers=headers, client=LOCAL)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "token" in answer.json()["error"]
    assert ("sum", 3) in service.catalog.records


def test_with_the_token_callers_manage_from_anywhere(upload_dir: Path) -> None:
    service = Service(upload_dir, token="s3cret")
    for headers in (
        {"Authorization": "Bearer s3cret"},
        {"authorization": "bearer  s3cret"},
        {"X-API-Key": "s3cret"},
        {"Authorization": "Bearer s3cret", "Origin": "https://console.example"},
    ):
        assert service.request("GET", "/v1/models", headers=headers, client=REMOTE).status_code == 200


def test_prediction_and_health_need_no_token_unless_told(upload_dir: Path) -> None:
    service = Service(upload_dir, token="s3cret")
    service.catalog.serve(ScriptedModel("sum", 3))
    assert service.predict({"instances": [[1, 2, 3]]}, client=REMOTE).status_code == 200
    for path in ("/v2/health/live", "/v2/health/ready", "/metrics", "/v1/models/sum", "/v1/models/sum/metadata"):
        assert service.request("GET", path, client=REMOTE).status_code == 200

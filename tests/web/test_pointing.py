"""Labels, history and rolling back over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.store import State
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel


@pytest.fixture
def two(tmp_path: Path) -> Service:
    service = Service(tmp_path)
    for version in (1, 2):
        service.catalog.serve(ScriptedModel("sum", version=version))
    return service


def test_a_label_is_set_listed_asked_by_and_removed(two: Service) -> None:
    set_it = two.request("PUT", "/v1/models/sum/labels/stable", json={"version": 1})
    assert (set_it.status_code, set_it.json()["version"]) == (200, 1)
    assert two.request("GET", "/v1/models/sum/labels").json() == {"labels": {"stable": 1}}
    assert two.request("DELETE", "/v1/models/sum/labels/stable").status_code == 204
    assert two.request("GET", "/v1/models/sum/labels").json() == {"labels": {}}


@pytest.mark.parametrize("body", ["{}", "[]", '{"version": "1"}', '{"version": 0}', '{"version": true}', "1", "{"])
def test_a_body_that_names_no_version_is_refused(two: Service, body: str) -> None:
    answer = two.request("PUT", "/v1/models/sum/labels/stable", content=body)
    assert answer.status_code == 400
    assert two.catalog.set_labels == {}


def test_a_label_that_no_path_could_name_is_refused(two: Service) -> None:
    answer = two.request("PUT", "/v1/models/sum/labels/-x", json={"version": 1})
    assert (answer.status_code, "label '-x' is not allowed" in answer.json()["error"]) == (400, True)


def test_what_is_unknown_is_not_found(two: Service) -> None:
    for method, path in (
        ("GET", "/v1/models/other/labels"),
        ("GET", "/v1/models/other/history"),
        ("DELETE", "/v1/models/other/labels/x"),
    ):
        assert two.request(method, path).status_code == 404
    assert two.request("PUT", "/v1/models/sum/labels/x", json={"version": 9}).status_code == 404


def test_rolling_back_and_the_history(two: Service) -> None:
    assert two.request("POST", "/v1/models/sum:rollback").status_code == 409
    for version in (1, 2):
        assert two.request("POST", f"/v1/models/sum/versions/{version}:activate").status_code == 200
    answer = two.request("POST", "/v1/models/sum:rollback")
    assert (answer.status_code, answer.json()["version"], answer.json()["active"]) == (200, 1, True)
    history = two.request("GET", "/v1/models/sum/history").json()["history"]
    assert [entry["version"] for entry in history] == [1, 2, 1]


def test_all_of_it_needs_the_token(tmp_path: Path) -> None:
    service = Service(tmp_path, token="secret")
    service.catalog.add("sum", 1, State.AVAILABLE)
    for method, path in (
        ("GET", "/v1/models/sum/labels"),
        ("PUT", "/v1/models/sum/labels/x"),
        ("DELETE", "/v1/models/sum/labels/x"),
        ("GET", "/v1/models/sum/history"),
        ("POST", "/v1/models/sum:rollback"),
    ):
        assert service.request(method, path).status_code == 401

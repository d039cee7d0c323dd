"""Where requests come from: a page in somebody's browser manages nothing, by whatever name it calls the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel

LOOPBACK = (
    "localhost",
    "LOCALHOST:8000",
    "127.0.0.1:8000",
    "127.9.9.9",
    "[::1]:8000",
    "rowwise.localhost",
    "localhost.",
)
FOREIGN = (
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "10.0.0.5",
    "127.0.0.1.evil.example",
    "",
    "0.0.0.0",
    "a" * 300 + ".localhost",
)


@pytest.fixture
def open_here(tmp_path: Path) -> Service:
    made = Service(tmp_path)
    made.catalog.serve(ScriptedModel("sum", 3))
    return made


@pytest.mark.parametrize("host", LOOPBACK)
def test_programs_of_this_machine_manage_by_its_loopback_names(open_here: Service, host: str) -> None:
    assert open_here.request("GET", "/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_a_page_whose_name_was_made_to_point_here_manages_nothing(open_here: Service, host: str) -> None:
    """DNS rebinding: to the browser it is the page's own server, so that it sends no Origin with a GET."""
    for method, path in (("GET", "/v1/models"), ("DELETE", "/v1/models/sum"), ("POST", "/v2/repository/index")):
        answer = open_here.request(method, path, headers={"host": host})
        assert (answer.status_code, "host_names" in answer.json()["error"]) == (403, True)
    assert ("sum", 3) in open_here.catalog.records


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:8000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "same-origin"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded; charset=utf-8"},
        {"content-type": "Multipart/Form-Data; boundary=x"},
        {"x-forwarded-for": "192.0.2.1"},
    ],
)
def test_what_a_page_in_a_browser_can_send_changes_nothing(open_here: Service, headers: dict[str, str]) -> None:
    for path in ("/v1/models/sum/versions/3:activate", "/v2/repository/models/sum/unload"):
        assert open_here.request("POST", path, headers=headers).status_code == 403
    assert open_here.catalog.records["sum", 3].active


CONSOLE = {"x-rowwise-console": "1", "sec-fetch-site": "same-origin"}


def test_the_servers_own_console_may_do_what_programs_of_this_machine_may(open_here: Service) -> None:
    here = {"host": "localhost:8000", **CONSOLE}
    assert open_here.request("GET", "/v1/models", headers=here).status_code == 200
    from_it = {**here, "origin": "http://localhost:8000"}
    unload = "/v2/repository/models/sum/unload"
    assert open_here.request("POST", unload, headers=from_it).status_code == 200
    assert not open_here.catalog.records["sum", 3].active


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://localhost:9000"},
        {"origin": "http://localhost"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "localhost:8000"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
        {"x-forwarded-for": "192.0.2.1"},
        {"content-type": "text/plain"},
        {"host": "evil.example", "origin": "http://evil.example"},
    ],
)
def test_a_page_that_says_it_is_the_console_is_not_believed_beyond_what_its_browser_says(
    open_here: Service, headers: dict[str, str]
) -> None:
    sent = {"host": "localhost:8000", **CONSOLE, "origin": "http://localhost:8000", **headers}
    answer = open_here.request("POST", "/v1/models/sum/versions/3:activate", headers=sent)
    assert answer.status_code == 403
    assert open_here.catalog.activated == []


def test_without_a_console_no_page_is_the_servers_own(tmp_path: Path) -> None:
    made = Service(tmp_path, console=False)
    assert made.request("GET", "/v1/models", headers={"host": "localhost:8000", **CONSOLE}).status_code == 403


def test_an_address_that_a_person_typed_may_be_read(open_here: Service) -> None:
    assert open_here.request("GET", "/v1/models", headers={"sec-fetch-site": "none"}).status_code == 200


def test_names_that_were_given_are_the_servers_own_and_no_others(tmp_path: Path) -> None:
    made = Service(tmp_path, host_names=("Models.example",))
    made.catalog.serve(ScriptedModel("sum", 3))
    body = {"instances": [[1, 2, 3]]}
    for host, status in (("models.example:80", 200), ("localhost", 200), ("evil.example", 403)):
        assert made.request("GET", "/v1/models", headers={"host": host}).status_code == status
        assert made.predict(body, headers={"host": host}).status_code == status
        assert made.request("GET", "/v2/models/sum", headers={"host": host}).status_code == status
        assert made.request("GET", "/v2/health/live", headers={"host": host}).status_code == 200, "probes use addresses"


def test_with_a_token_a_request_may_come_by_any_name_and_from_a_page_that_has_it(tmp_path: Path) -> None:
    made = Service(tmp_path, token="s3cret")
    headers = {"host": "models.example", "origin": "http://console.example", "authorization": "Bearer s3cret"}
    assert made.request("GET", "/v1/models", headers=headers).status_code == 200


def test_predictions_that_are_open_are_open_by_any_name(open_here: Service) -> None:
    assert open_here.predict({"instances": [[1, 2, 3]]}, headers={"host": "models.example"}).status_code == 200

"""The OpenAPI document: what is served is in it, and what is in it is so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.web import api_document
from server.web.paths import parse_verb_path
from server.web.status import CLIENT_GONE, STATUS
from tests.web.api_requests import ask_everything
from tests.web.scripted import Service

#: What fills the parameters of a path.
NAMES = {"{model}": "sum", "{version}": "3", "{label}": "best"}


@pytest.fixture
def document(service: Service) -> dict[str, Any]:
    answer = service.request("GET", "/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def filled(path: str) -> str:
    for name, value in NAMES.items():
        path = path.replace(name, value)
    return path


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(method, path, one) for path, methods in document["paths"].items() for method, one in methods.items()]


def test_paths_of_predictions_are_in_the_document(document: dict[str, Any]) -> None:
    asked = {
        (path.verb, path.is_oip, path.version is not None, path.label is not None)
        for method, template, _ in operations(document)
        if method == "post"
        and (path := parse_verb_path(filled(template)))
        and path.verb not in {"activate", "rollback", "shadow"}
    }
    verbs = {(verb, False) for verb in ("predict", "gradient", "jacobian", "hessian", "classify", "regress")}
    which = {(False, False), (True, False), (False, True)}
    assert asked == {(verb, is_oip, *one) for verb, is_oip in verbs | {("predict", True)} for one in which}


def test_what_no_route_answers_is_not_in_it(document: dict[str, Any]) -> None:
    assert "422" not in str(document)
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_every_code_of_an_error_is_in_it(document: dict[str, Any]) -> None:
    codes = {int(code) for _, _, one in operations(document) for code in one["responses"]}
    # What HTTP itself refuses is nobody's operation yet.
    of_http = {414, 431, 505}
    assert codes >= set(STATUS.values()) - {CLIENT_GONE} - of_http


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    names = [one["operationId"] for _, _, one in operations(document)]
    assert len(set(names)) == len(names) > 50


def test_requests_made_from_the_document_get_answers_that_it_names(tmp_path: Path) -> None:
    outcome = ask_everything(tmp_path, n_examples=2, seed=1, every=6)
    assert outcome.failures == []
    assert outcome.n_operations > 7
    assert outcome.n_requests > 20
    assert outcome.statuses[200] > 0


def test_an_answer_that_the_document_does_not_name_is_found(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for tag in ("models", "management", "predictions", "open inference protocol"):
            patch.setitem(api_document._BY_TAG, tag, (429,))
        outcome = ask_everything(tmp_path, n_examples=2, seed=0, every=12)
    assert "Undocumented status code" in str(outcome.failures)

"""Rights over HTTP: every route by one table, models out of reach, lists, rates, and tokens that change meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from server.rights import add_token, revoke_token
from server.settings import Settings
from server.web.application import check_rules
from server.web.scopes import ASK, KNOWN, MANAGE, OPEN, PREDICT, READ, SCRAPE, Rule, route_rule
from tests.web.rights import ALL, bearer, entry, tokens
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel

CALLERS = (None, "wrong", "predict", "read", "manage", "elsewhere", "read-all", ALL)
#: Who comes in, by rule, where a model called "sum" is asked about.
LET_IN: dict[Rule, set[str]] = {
    PREDICT: {"predict"},
    ASK: {"predict", "read", "manage", "read-all"},
    READ: {"read", "manage", "read-all"},
    SCRAPE: {"read-all"},
    MANAGE: {"manage"},
    KNOWN: {"predict", "read", "manage", "read-all"},
}
#: Paths without a model that show each caller what is in his reach, which may be nothing.
OF_NO_MODEL = {
    "/v1/status",
    "/v1/models",
    "/v2/models/stats",
    "/v1/debug/batches",
    "/v1/console/session",
    "/v2/repository/index",
    # Which model an upload is for is said when it is registered; until then who knows its id has it.
    "/v1/uploads",
    "/v1/uploads/{upload}",
}


class Batches:
    """Two batches, of two models."""

    def recent(self, *, model: str | None, limit: int, covers: Callable[[str], bool]) -> list[dict[str, Any]]:
        return [{"model": name} for name in ("sum", "other-one") if model in (None, name) and covers(name)][:limit]


def service(directory: Path, **settings: Any) -> Service:
    made = Service(directory, **{"token": ALL, "tokens": tokens(), **settings}, batches=Batches())
    made.catalog.serve(ScriptedModel("sum", 3))
    made.catalog.serve(ScriptedModel("other-one", 1))
    return made


@pytest.fixture
def guarded(tmp_path: Path) -> Service:
    return service(tmp_path)


def asked(made: Service, token: str | None, method: str, path: str, **options: Any) -> int:
    return made.request(method, path, headers=bearer(token), **options).status_code


def routes(made: Service) -> list[tuple[str, str]]:
    document = made.request("GET", "/openapi.json").json()
    return [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]


def rule_of(method: str, path: str) -> Rule:
    is_prediction = path.endswith("/infer") or (
        ":" in path and not path.endswith((":activate", ":rollback", ":shadow"))
    )
    return PREDICT if is_prediction else route_rule(method, path)


def test_every_route_lets_in_whom_its_rule_names_and_nobody_else(guarded: Service) -> None:
    seen: set[Rule] = set()
    wrong = []
    for method, template in routes(guarded):
        rule = rule_of(method, template)
        seen.add(rule)
        path = template.replace("{model}", "sum").replace("{version}", "3").replace("{label}", "best")
        for caller in CALLERS:
            guarded.catalog.serve(ScriptedModel("sum", 3))
            may = rule is OPEN or caller == ALL or caller in LET_IN.get(rule, ())
            if caller == "elsewhere" and path in OF_NO_MODEL:
                may = True
            expected = "in" if may else "401" if caller in (None, "wrong") else "403"
            status = asked(guarded, caller, method, path, **({"json": {}} if method in ("PUT", "POST") else {}))
            found = str(status) if status in (401, 403) else "in"
            if found != expected:
                wrong.append((method, path, caller, found, expected))
    assert not wrong
    assert seen == {OPEN, *LET_IN}


def test_a_route_without_a_rule_is_not_served() -> None:
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.get("/v1/forgotten")
    async def forgotten() -> None: ...

    with pytest.raises(ValueError, match="/v1/forgotten"):
        check_rules(app)


def test_a_model_out_of_reach_answers_the_same_whether_or_not_it_is_there(guarded: Service) -> None:
    for method, path in (
        ("GET", "/v1/models/{}"),
        ("GET", "/v2/models/{}"),
        ("GET", "/v2/models/{}/ready"),
        ("GET", "/v1/models/{}/versions/1/certificate"),
        ("POST", "/v1/models/{}:predict"),
        ("POST", "/v2/models/{}/infer"),
        ("POST", "/v1/models/{}:gradient"),
        ("PUT", "/v1/models/{}"),
        ("DELETE", "/v1/models/{}"),
        ("POST", "/v2/repository/models/{}/unload"),
    ):
        for token in ("predict", "read", "manage"):
            answers = [
                guarded.request(method, path.format(name), headers=bearer(token)) for name in ("other-one", "other-two")
            ]
            assert [answer.status_code for answer in answers] == [403, 403]
            assert answers[0].text == answers[1].text.replace("other-two", "other-one")
    assert ("other-one", 1) in guarded.catalog.records


def test_lists_show_what_is_in_reach(guarded: Service) -> None:
    def names(token: str) -> list[set[str]]:
        def get(method: str, path: str) -> Any:
            return guarded.request(method, path, headers=bearer(token)).json()

        return [
            {each["model"] for each in get("GET", "/v1/models")["models"]},
            {each["name"] for each in get("GET", "/v2/models/stats")["model_stats"]},
            {each["name"] for each in get("POST", "/v2/repository/index")},
            {each["model"] for each in get("GET", "/v1/debug/batches?limit=1")["batches"]},
        ]

    assert names("read") == names("manage") == [{"sum"}] * 4
    assert names("elsewhere") == [{"other-one"}] * 4
    assert names(ALL)[:3] == names("read-all")[:3] == [{"sum", "other-one"}] * 3


def test_probes_name_no_models_to_strangers(guarded: Service, tmp_path: Path) -> None:
    guarded.catalog.not_ready = ["model 'secret-plan' is loading"]
    answer = guarded.request("GET", "/v2/health/ready")
    assert (answer.status_code, "secret-plan" in answer.text) == (503, False)


def test_scoped_tokens_protect_predictions_unless_they_are_said_to_be_open(tmp_path: Path) -> None:
    body = {"instances": [[1, 2, 3]]}
    for settings, status in (
        ({}, 401),
        ({"protect_predict": False}, 200),
        ({"tokens": ()}, 200),
        ({"tokens": (), "protect_predict": True}, 401),
    ):
        assert service(tmp_path, **settings).predict(body).status_code == status


def test_without_any_token_protected_predictions_are_for_this_machine(tmp_path: Path) -> None:
    made = service(tmp_path, tokens=(), protect_predict=True)
    made.app.change(Settings(protect_predict=True))
    body = {"instances": [[1, 2, 3]]}
    assert made.predict(body).status_code == 200
    assert made.predict(body, client=("192.0.2.1", 5)).status_code == 403


def test_a_token_may_send_so_many_rows_and_is_told_when_it_may_send_more(tmp_path: Path) -> None:
    limited = entry("predict", "predict", predict_rows_per_s=0.01, predict_rows_burst=3)
    made = service(tmp_path, tokens=(limited, entry("other", "predict")))
    one, three = {"instances": [[1, 2, 3]]}, {"instances": [[1, 2, 3]] * 3}

    def status(body: Any, token: str) -> int:
        return made.predict(body, headers=bearer(token)).status_code

    assert status(one, "predict") == 200
    assert status(three, "predict") == 200, "a burst may be overdrawn by its last request"
    answer = made.predict(one, headers=bearer("predict"))
    assert (answer.status_code, 199 <= int(answer.headers["retry-after"]) <= 200) == (429, True)
    assert "'predict'" in answer.json()["error"]
    assert status(three, "other") == 200, "others are not held up"
    assert asked(made, "predict", "GET", "/v2/models/sum") == 200, "nor are questions"


def test_a_body_that_can_not_be_read_costs_one_row(tmp_path: Path) -> None:
    limited = entry("predict", "predict", predict_rows_per_s=0.01, predict_rows_burst=2)
    made = service(tmp_path, tokens=(limited,))
    statuses = [made.predict(b"{", headers=bearer("predict")).status_code for _ in range(3)]
    assert statuses == [400, 400, 429]


def test_a_token_may_make_so_many_other_requests(tmp_path: Path) -> None:
    made = service(tmp_path, tokens=(entry("m", "manage", "predict", manage_per_s=0.01, manage_burst=2),))
    assert [asked(made, "m", "GET", "/v1/models") for _ in range(3)] == [200, 200, 429]
    assert asked(made, "m", "DELETE", "/v1/models/sum") == 429
    assert ("sum", 3) in made.catalog.records
    assert made.predict({"instances": [[1, 2, 3]]}, headers=bearer("m")).status_code == 200


def test_a_token_that_is_revoked_in_the_file_is_a_strangers_from_the_next_look_on(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    for name in ("a", "b"):
        add_token(path, entry(name, "predict", "read"))
    made = service(tmp_path, tokens=(), tokens_file=path)
    assert [asked(made, name, "GET", "/v1/models") for name in ("a", "b", "c")] == [200, 200, 401]
    revoke_token(path, "a")
    add_token(path, entry("c", "read"))
    made.app.gate.look()
    assert [asked(made, name, "GET", "/v1/models") for name in ("a", "b", "c", ALL)] == [401, 200, 200, 200]


def test_a_token_that_has_ended_is_refused_with_the_reason_by_who_remembers_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, ends = tmp_path / "audit", "2030-01-31T12:00:00Z"
    made = service(tmp_path, tokens=(entry("a", "predict", "read", expires=ends), entry("b", "read")), audit_log=log)
    now_s = datetime.fromisoformat(ends).timestamp() - 2 * 86_400.0
    gate = made.app.gate
    monkeypatch.setattr(gate, "_wall_clock", lambda: now_s)
    forgotten: list[bool] = []
    gate.on_change.append(lambda: forgotten.append(True))
    gate.look()
    assert [asked(made, name, "GET", "/v1/models") for name in ("a", "b")] == [200, 200]
    assert (forgotten, "token 'a' ends on" in caplog.text) == ([], True)
    now_s += 2 * 86_400.0
    answer = made.request("GET", "/v1/models", headers=bearer("a"))
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json()["error"] == "token 'a' expired on 2030-01-31T12:00:00Z: ask for a new one"
    assert made.predict({"instances": [[1, 2, 3]]}, headers=bearer("a")).status_code == 401
    assert asked(made, "b", "GET", "/v1/models") == 200
    for _ in range(2):
        gate.look()
    assert forgotten == [True], "once, for answers that were remembered"
    assert [(line[1], line[6]) for line in audit_of(log)] == [("a", "TokenExpired")] * 2
    now_s -= 1.0
    gate.look()
    assert forgotten == [True, True], "the clock was set back"


def test_a_file_that_can_not_be_read_any_more_leaves_the_tokens_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.toml"
    add_token(path, entry("a", "read"))
    made = service(tmp_path, tokens=(), tokens_file=path)
    for change in (lambda: path.write_text("[[tokens]]\nname = 5"), path.unlink):
        change()
        for _ in range(2):
            made.app.gate.look()
        assert [asked(made, name, "GET", "/v1/models") for name in ("a", None)] == [200, 401]
    faults = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(faults) == 2, "once for each change, not at each look"
    add_token(path, entry("b", "read"))
    made.app.gate.look()
    assert [asked(made, name, "GET", "/v1/models") for name in ("a", "b")] == [401, 200]


def test_a_server_does_not_start_with_tokens_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can't be read"):
        service(tmp_path, tokens_file=tmp_path / "missing.toml")


def audit_of(path: Path) -> list[tuple[Any, ...]]:
    keys = ("event", "who", "what", "model", "version", "from", "result", "request_id")
    return [tuple(json.loads(line).get(key) for key in keys) for line in path.read_text().splitlines()]


def test_the_audit_log_tells_who_changed_what_and_who_was_refused(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    made = service(tmp_path, audit_log=log)
    for token, method, path, status in (
        ("manage", "POST", "/v1/models/sum/versions/3:activate", 200),
        ("manage", "POST", "/v1/models/sum/versions/9:activate", 404),
        ("read", "DELETE", "/v1/models/sum", 403),
        (None, "DELETE", "/v1/models/sum?token=s3cret", 401),
        ("elsewhere", "POST", "/v1/models/sum:predict", 403),
        ("read", "GET", "/v1/models", 200),
        ("predict", "POST", "/v1/models/sum:predict", 400),
    ):
        answer = made.request(method, path, headers={**bearer(token), "x-request-id": "r"}, content=b"unreadable input")
        assert answer.status_code == status
    activate, delete, here = (
        "POST /v1/models/{model}/versions/{version}:activate",
        "DELETE /v1/models/{model}",
        "127.0.0.1",
    )
    assert audit_of(log) == [
        ("asked", "manage", activate, "sum", "3", here, None, "r"),
        ("answered", "manage", activate, "sum", "3", here, "200", "r"),
        ("asked", "manage", activate, "sum", "9", here, None, "r"),
        ("answered", "manage", activate, "sum", "9", here, "404", "r"),
        ("refused", "read", delete, "sum", None, here, "Forbidden", "r"),
        ("refused", "anybody", delete, "sum", None, here, "Unauthorized", "r"),
        ("refused", "elsewhere", "POST :predict", "sum", None, here, "Forbidden", "r"),
    ]
    assert "s3cret" not in log.read_text()
    assert "unreadable" not in log.read_text()


def test_a_registration_is_in_the_audit_log_with_its_version(tmp_path: Path) -> None:
    made = service(tmp_path, audit_log=tmp_path / "audit", import_packages=("models",))
    answer = made.request(
        "PUT", "/v1/models/s1", headers=bearer("manage"), json={"import_path": "models.digits:predict"}
    )
    assert answer.status_code == 202
    asked_for, answered = audit_of(tmp_path / "audit")
    assert (asked_for[4], answered[4], answered[6]) == (None, answer.json()["version"], "202")


def test_a_bug_of_ours_is_in_the_audit_log_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = service(tmp_path, audit_log=tmp_path / "audit")
    monkeypatch.setattr(made.catalog, "activate", lambda *_: 1 / 0)
    assert asked(made, ALL, "POST", "/v1/models/sum/versions/3:activate") == 500
    assert [line[6] for line in audit_of(tmp_path / "audit")] == [None, "500"]


def test_on_a_full_disk_nothing_is_managed_and_predictions_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = service(tmp_path, audit_log=tmp_path / "audit")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(made.app.gate.audit, "_write", full)
    answer = made.request("DELETE", "/v1/models/sum", headers=bearer("manage"))
    assert (answer.status_code, "No space left" in answer.json()["error"]) == (503, True)
    assert ("sum", 3) in made.catalog.records
    assert made.predict({"instances": [[1, 2, 3]]}, headers=bearer("predict")).status_code == 200
    assert asked(made, "read", "GET", "/v1/models") == 200
    assert made.predict({"instances": [[1, 2, 3]]}).status_code == 401


def test_what_is_wrong_with_a_request_is_not_told_to_who_may_not_make_it(guarded: Service) -> None:
    """Neither the body nor the rest of the head is looked at before the token."""
    late = {"x-request-timeout-ms": "soon", **bearer("elsewhere")}
    assert guarded.predict(b"{", headers=late).status_code == 403

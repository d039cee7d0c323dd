"""Callers who want what is another's: answers, models, time."""

from __future__ import annotations

import json
import threading

from loadtests.attack.case import Harm, attack
from loadtests.attack.target import Target

__all__: list[str] = []

_AREA = "tenancy"


def _predict(target: Target, token: str, instances: str) -> tuple[int, str]:
    body = f'{{"instances": {instances}}}'
    headers = {"Content-Type": "application/json"}
    answer = target.ask("POST", "/v1/models/digits:predict", token=token, content=body, headers=headers)
    return answer.status_code, answer.text


@attack(_AREA, "a poisoned example in everybody's batch")
def poison(target: Target) -> str:
    """Of the wrong shape, type and name, while the watch asks right ones."""
    bad = [
        json.dumps([{"image": [0.0] * 63}]),
        '[{"image": "x"}]',
        '[{"other": 1}]',
        "[[null]]",
        '[{"image": [[1e999]]}]',
    ]
    for _ in range(100):
        for each in bad:
            status, text = _predict(target, target.caller, each)
            assert 400 <= status < 500, f"answered {status}: {text[:200]}"
    return f"{100 * len(bad)} were refused alone"


@attack(_AREA, "an example of another in an error")
def example_of_another(target: Target) -> str:
    """Two callers at once, one of whom sends a number that occurs nowhere else, the other what is refused."""
    mark = 0.123456789

    def send_marked() -> None:
        for _ in range(50):
            _predict(target, target.caller, json.dumps([{"image": [mark] * 64}]))

    thread = threading.Thread(target=send_marked)
    thread.start()
    seen = [_predict(target, target.caller, json.dumps([{"image": [1.0] * 63}]))[1] for _ in range(50)]
    thread.join()
    if any(str(mark) in text for text in seen):
        raise Harm("an error shows another's example")
    return "errors show one's own example alone"


@attack(_AREA, "a model that the token may not use")
def out_of_reach(target: Target) -> str:
    """Alike, whether it exists or not."""
    answers = [
        target.ask("POST", f"/v1/models/{name}:predict", token=target.neighbour, json={"instances": [0]})
        for name in ("digits", "no-such-model")
    ]
    texts = {answer.text.replace("no-such-model", "digits") for answer in answers}
    statuses = {answer.status_code for answer in answers}
    if len(statuses) > 1 or len(texts) > 1:
        raise Harm(f"whether a model exists is told: {statuses} {texts}")
    return target.refused(answers[0])


@attack(_AREA, "a list of what the token may not use")
def lists(target: Target) -> str:
    """In every form that there is."""
    for method, path in (("GET", "/v1/models"), ("POST", "/v2/repository/index"), ("GET", "/metrics")):
        answer = target.ask(method, path, token=target.neighbour)
        if "digits" in answer.text:
            raise Harm(f"{path} names a model that is out of reach")
    return "none names it"


@attack(_AREA, "a token in another's place")
def token_elsewhere(target: Target) -> str:
    """In the query, in a cookie, as a user and password."""
    tries = [
        target.ask("GET", f"/v1/models?token={target.secrets.token}"),
        target.ask("GET", "/v1/models", headers={"Cookie": f"token={target.secrets.token}"}),
        target.ask("GET", "/v1/models", auth=("admin", target.secrets.token)),
    ]
    return " and ".join({target.refused(answer)[:40] for answer in tries})


@attack(_AREA, "10,000 tokens that are wrong")
def guessing(target: Target) -> str:
    """Each another one."""
    import httpx

    with httpx.Client(base_url=target.url, timeout=60) as client:
        statuses = {
            client.get("/v1/models", headers={"Authorization": f"Bearer rowwise_{n:038d}"}).status_code
            for n in range(10_000)
        }
    assert statuses <= {401, 429}, f"answered {statuses}"
    return f"answered {sorted(statuses)}"

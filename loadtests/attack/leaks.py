"""What is told to those whom it does not concern: in errors, in metrics, in the log."""

from __future__ import annotations

import re

import httpx

from loadtests.attack.case import Harm, attack
from loadtests.attack.target import Target

__all__ = ["AREA"]

#: Last of all, as the answers to the others are searched.
AREA = "leaks"


@attack(AREA, "metrics that grow with what callers send")
def growing_metrics(target: Target) -> str:
    """1,000 names of models that do not exist, versions, verbs and paths."""

    def lines() -> int:
        answer = target.ask("GET", "/metrics", token=target.secrets.token)
        assert answer.status_code == 200, answer.text[:200]
        return len(answer.text.splitlines())

    before = lines()
    with httpx.Client(
        base_url=target.url, timeout=60, headers={"Authorization": f"Bearer {target.secrets.token}"}
    ) as client:
        for number in range(1_000):
            for path in (
                f"/v1/models/none-{number}:predict",
                f"/v1/models/digits/versions/{number + 100}:predict",
                f"/{number}",
            ):
                assert client.post(path, json={"instances": [0]}).status_code >= 400
    grown = lines() - before
    if grown > 50:
        raise Harm(f"there are {grown} lines more")
    return f"{grown} lines more after 3,000 requests"


@attack(AREA, "secrets in the answers so far")
def secrets_in_answers(target: Target) -> str:
    """Of every attack before this one."""
    everything = "\n".join(target.said)
    for what in ("in_file", "in_environment", "token"):
        if getattr(target.secrets, what) in everything:
            raise Harm(f"an answer holds the secret {what}")
    return f"{len(target.said):,} answers, {len(everything):,} characters"


@attack(AREA, "paths of the server in the answers so far")
def paths_in_answers(target: Target) -> str:
    """Of the store, of Python, of the packages."""
    everything = "\n".join(target.said)
    for place in (str(target.store), "site-packages", "/server/build/", "/tensorflow/"):
        found = re.search(re.escape(place), everything)
        if found:
            raise Harm(f"an answer holds {everything[max(0, found.start() - 100) : found.end() + 60]!r}")
    return f"{len(target.said):,} answers"


@attack(AREA, "tokens in the log")
def tokens_in_log(target: Target) -> str:
    """Who reads logs has not always the right to register."""
    log = target.server.log()
    for token in (target.secrets.token, target.registrar, target.caller):
        if token in log:
            raise Harm("the log holds a token")
    return "none"

"""A server that runs: does it answer, is it ready, does its clock agree."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx

from rowwise.doctor.finding import Finding, advice, fine, wrong

__all__ = ["ServerFacts", "ask_server", "running_findings"]

_TIMEOUT_S = 5.0
_SKEW_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server said. ``status`` 0: it said nothing, and ``error`` is why; None for what it did not tell us."""

    status: int = 0
    ready: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    #: Seconds since 1970 by its clock.
    at_s: float | None = None
    models: list[Mapping[str, Any]] | None = None
    #: Status of the question for its models, for what a token allows.
    models_status: int = 0


def ask_server(url: str, token: str | None, *, ca: Path | None = None) -> ServerFacts:
    """Ask whether it is ready, and for its models."""
    try:
        verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca) if url.startswith("https:") else True
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S, verify=verify, trust_env=False) as client:
            ready = client.get("/v2/health/ready")
            listed = client.get("/v1/models")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return ServerFacts(error=str(error) or type(error).__name__)
    answer = _json(listed)
    date = ready.headers.get("date")
    return ServerFacts(
        status=ready.status_code,
        ready=_json(ready),
        at_s=None if date is None else parsedate_to_datetime(date).timestamp(),
        models=answer.get("models") if isinstance(answer.get("models"), list) else None,
        models_status=listed.status_code,
    )


def running_findings(url: str, facts: ServerFacts, *, now_s: float) -> Iterator[Finding]:
    """Yield what is wrong with it."""
    if not facts.status:
        yield wrong(
            "server",
            f"no server answers at {url}: {facts.error}",
            why="nobody gets predictions from it",
            to_do="start it (rowwise serve), or say where it is: --url; --ca for who signed its certificate",
        )
        return
    if "ready" not in facts.ready:
        yield wrong(
            "server",
            f"what answers at {url} is no Rowwise server (HTTP {facts.status})",
            why="the URL is another program's, or a proxy's in front of it",
            to_do="name the server's own address: --url",
        )
        return
    if facts.ready["ready"]:
        yield fine("server", f"{url} is ready")
    else:
        reasons = facts.ready.get("reasons") or [facts.ready.get("error", "it does not say why")]
        yield wrong(
            "server",
            f"{url} is not ready: {'; '.join(map(str, reasons))}",
            why="load balancers send it no traffic",
            to_do="wait if it is loading; else `rowwise models` has the reasons of versions that failed",
        )
    for note in facts.ready.get("notes", ()):
        yield advice("server", str(note), why="it serves, with trouble", to_do="read its log")
    yield from _models(facts)
    if facts.at_s is not None and abs(facts.at_s - now_s) > _SKEW_S:
        yield advice(
            "clock",
            f"the server's clock is {facts.at_s - now_s:+,.0f} s from this machine's",
            why="logs and histories of the two can't be put together",
            to_do="let a time service keep both",
        )


def _models(facts: ServerFacts) -> Iterator[Finding]:
    if facts.models_status in {401, 403}:
        yield advice(
            "server",
            "it does not tell its models to this token",
            why="what failed can't be looked at",
            to_do="name a token with the scope read: --token or ROWWISE_TOKEN",
        )
    for model in facts.models or ():
        if str(model.get("state", "")).upper() == "FAILED":
            yield advice(
                "server",
                f"model {model.get('model')!r} version {model.get('version')} failed: {model.get('reason')}",
                why="it does not serve",
                to_do="register it again once the reason is mended, or delete the version",
            )


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        value = answer.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}

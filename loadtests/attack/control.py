"""Whoever may not: every way to change a model, or to read what is not for all, without the right to."""

from __future__ import annotations

from typing import Any

from loadtests.attack.case import Harm, attack
from loadtests.attack.target import Target, registration

__all__: list[str] = []

_AREA = "control"
_CHANGES: tuple[tuple[str, str, str, Any], ...] = (
    ("registers", "PUT", "/v1/models/digits", registration()),
    ("deletes a model", "DELETE", "/v1/models/digits", None),
    ("deletes a version", "DELETE", "/v1/models/digits/versions/1", None),
    ("activates", "POST", "/v1/models/digits/versions/1:activate", None),
    ("unloads, by the other protocol", "POST", "/v2/repository/models/digits/unload", {}),
    ("loads, by the other protocol", "POST", "/v2/repository/models/digits/load", {}),
)
_READS: tuple[tuple[str, str, str], ...] = (
    ("lists models", "GET", "/v1/models"),
    ("lists models, by the other protocol", "POST", "/v2/repository/index"),
    ("reads a certificate", "GET", "/v1/models/digits/certificate"),
    ("reads costs", "GET", "/v1/models/digits/costs"),
    ("reads recent batches", "GET", "/v1/debug/batches"),
    ("reads the server's state", "GET", "/v1/status"),
)


def _without_rights() -> None:
    for what, method, path, body in (*_CHANGES, *((*each, None) for each in _READS)):

        def run(target: Target, method: str = method, path: str = path, body: Any = body) -> str:
            said = ""
            for token in (None, "wrong", target.caller):
                answer = target.ask(method, path, token=token, **({} if body is None else {"json": body}))
                said = target.refused(answer, by=(401, 403))
            return said

        attack(_AREA, f"{what} without the right to")(run)


_without_rights()


@attack(_AREA, "every method on every path, without a token")
def every_method(target: Target) -> str:
    """Of the server's own description."""
    paths = target.ask("GET", "/openapi.json").json()["paths"]
    n_asked = 0
    for path in paths:
        place = path.replace("{model}", "digits").replace("{version}", "1").replace("{label}", "stable")
        for method in ("PUT", "POST", "DELETE", "PATCH"):
            answer = target.ask(method, place, json={})
            n_asked += 1
            assert answer.status_code in {400, 401, 403, 404, 405, 415}, f"{method} {place}: {answer.status_code}"
    return f"{n_asked} were refused"


@attack(_AREA, "loads and unloads over gRPC without the right to")
def over_grpc(target: Target) -> str:
    """By the Open Inference Protocol's repository, as stock clients do it."""
    import subprocess
    import sys

    code = f"""
import tritonclient.grpc as triton
for headers in ({{}}, {{"authorization": "Bearer wrong"}}, {{"authorization": "Bearer {target.caller}"}}):
    client = triton.InferenceServerClient({target.grpc!r})
    for change in (client.unload_model, client.load_model):
        try:
            change("digits", headers=headers)
        except triton.InferenceServerException as error:
            print(error.status())
        else:
            print("DONE")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    said = set(run.stdout.split())
    if "DONE" in said:
        raise Harm("it was done")
    assert said <= {"StatusCode.PERMISSION_DENIED", "StatusCode.UNAUTHENTICATED"}, run.stdout + run.stderr[-500:]
    assert said, run.stderr[-500:]
    return ", ".join(sorted(said))


@attack(_AREA, "a page in a browser that registers (CSRF)")
def cross_site(target: Target) -> str:
    """A form of another site, sent by somebody who sits at the server's machine."""
    said = ""
    for headers in (
        {"Origin": "https://evil.example", "Content-Type": "text/plain"},
        {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/x-www-form-urlencoded"},
        {"Origin": "null"},
    ):
        answer = target.ask("POST", "/v1/models/digits/versions/1:activate", headers=headers, content=b"{}")
        said = target.refused(answer, by=(401, 403, 415))
    return said


@attack(_AREA, "a name that is made to point here (DNS rebinding)")
def rebinding(target: Target) -> str:
    """The browser sends the page's own name as Host."""
    answer = target.ask("GET", "/v1/models", headers={"Host": "evil.example"})
    return target.refused(answer, by=(400, 401, 403, 421))


@attack(_AREA, "a proxy's header that says who asks")
def forwarded(target: Target) -> str:
    """As if the caller sat at the server's machine."""
    said = ""
    for name in (
        "X-Forwarded-For",
        "X-Real-IP",
        "Forwarded",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-HTTP-Method-Override",
    ):
        value = {"X-Original-URL": "/v1/models", "X-Rewrite-URL": "/v1/models", "X-HTTP-Method-Override": "DELETE"}
        answer = target.ask("GET", "/v1/models/digits/certificate", headers={name: value.get(name, "127.0.0.1")})
        said = target.refused(answer, by=(401, 403))
    return said


@attack(_AREA, "another spelling of a path")
def spellings(target: Target) -> str:
    """What a table of paths may miss."""
    said = ""
    for path in (
        "//v1/models",
        "/v1//models",
        "/v1/models/",
        "/./v1/models",
        "/v1/models/../models",
        "/V1/MODELS",
        "/v1/models%20",
        "/v1%2fmodels",
        "/v1/models?",
        "/v1/models;x=1",
        "/v2/../v1/models",
    ):
        host = ":".join(map(str, target.address))
        got = target.raw(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        said = got.split(b"\r\n", 1)[0].decode("latin-1")
        if " 200" in said:
            raise Harm(f"{path} is answered {said}")
    return said

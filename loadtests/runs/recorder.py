"""Stands between callers and a server, passes everything on, and keeps the examples of their predictions.

Callers are told its address instead of the server's. Of each prediction that was answered with 200, the examples (of
the row form, ``{"instances": [...]}``) go to DIRECTORY/MODEL.jsonl, one a line: what ``--inputs`` reads. Requests in
other forms pass, and are counted as not kept. Inputs may be personal: the files are the owner's alone, and nothing else
of a request is written, no header, no token, no answer. It listens on the loopback interface, and keeps so many
examples at most.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rowwise.values import decode_json, encode_json

__all__ = ["Recorder", "create_app", "kept_name", "listen"]

_PREDICT = re.compile(r"/v1/models/([^/:]+)(?:/(?:versions|labels)/[^/:]+)?:predict$", re.IGNORECASE)
#: These belong to one connection, not to a request.
_OF_A_CONNECTION = {
    *("connection", "content-encoding", "content-length", "host", "keep-alive", "proxy-authenticate"),
    *("proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"),
}
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@dataclass(kw_only=True)
class Recorder:
    """Writes examples, at most ``max_examples``. ``n_kept`` counts them by model; ``n_passed`` what was not kept."""

    directory: Path
    max_examples: int
    n_kept: Counter[str] = field(default_factory=Counter)
    n_passed: int = 0
    _files: dict[str, IO[bytes]] = field(default_factory=dict)

    def keep(self, path: str, body: bytes) -> None:
        """Write the examples of one request that was answered."""
        found = _PREDICT.search(path)
        instances = _instances(body) if found else None
        if found is None or instances is None:
            self.n_passed += 1
            return
        model = unquote(found[1])
        for instance in instances:
            if self.n_kept.total() >= self.max_examples:
                self.n_passed += 1
                return
            self._file(model).write(encode_json(instance) + b"\n")
            self.n_kept[model] += 1

    def flush(self) -> None:
        """Let what was kept be read."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _file(self, model: str) -> IO[bytes]:
        if model not in self._files:
            self.directory.mkdir(parents=True, exist_ok=True)
            path = self.directory / kept_name(model)
            # The owner's alone from the start; a link in its place is not followed.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            self._files[model] = os.fdopen(fd, "ab")
        return self._files[model]


def kept_name(model: str) -> str:
    """Return the file of a model, which stays in its directory whatever the model is called."""
    return f"{quote(model, safe='')}.jsonl"


def _instances(body: bytes) -> list[Any] | None:
    try:
        document = decode_json(body)
    except ValueError:
        return None
    instances = document.get("instances") if isinstance(document, Mapping) else None
    return instances if isinstance(instances, list) else None


def create_app(url: str, recorder: Recorder, *, transport: httpx.AsyncBaseTransport | None = None) -> Starlette:
    """Return what passes requests on to ``url``."""
    held: list[httpx.AsyncClient] = []

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            # No proxy and no redirect: what is asked is the server that was named.
            client = httpx.AsyncClient(base_url=url, timeout=None, trust_env=False, transport=transport)
            held.append(await stack.enter_async_context(client))
            stack.callback(recorder.close)
            yield

    async def passed_on(request: Request) -> Response:
        body = await request.body()
        # As it was sent: what is quoted in a model's name stays so.
        path = (request.scope.get("raw_path") or request.url.path.encode()).decode("latin-1")
        target = path + (f"?{request.url.query}" if request.url.query else "")
        headers = [(name, value) for name, value in request.headers.items() if name not in _OF_A_CONNECTION]
        if "content-encoding" in request.headers:
            headers.append(("content-encoding", request.headers["content-encoding"]))
        try:
            answer = await held[0].request(request.method, target, content=body, headers=headers)
        except httpx.HTTPError as error:
            return Response(f'{{"error":"the server behind the recorder: {type(error).__name__}"}}', 502)
        if answer.status_code == 200 and request.method == "POST":
            recorder.keep(path, body)
            recorder.flush()
        kept = {name: value for name, value in answer.headers.items() if name not in _OF_A_CONNECTION}
        return Response(answer.content, answer.status_code, kept)

    return Starlette(routes=[Route("/{path:path}", passed_on, methods=_METHODS)], lifespan=life)


def listen(url: str, recorder: Recorder, *, port: int) -> None:
    """Serve on the loopback interface until Ctrl-C."""
    import uvicorn

    uvicorn.run(create_app(url, recorder), host="127.0.0.1", port=port, log_level="warning", access_log=False)

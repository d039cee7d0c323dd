"""The examples of the client's page in the manual, run in their order against the server's web layer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.source_files import ROOT
from tests.web.scripted import ScriptedModel, Service


def test_the_examples_of_the_clients_page_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "client.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    service = Service(tmp_path)
    service.catalog.serve(ScriptedModel("sum", 3))

    def handle(request: httpx.Request) -> httpx.Response:
        path, headers = request.url.raw_path.decode(), {**request.headers, "host": "localhost"}
        answer = service.request(request.method, path, content=request.read(), headers=headers)
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content)

    # No port has to be free for it.
    monkeypatch.setattr(httpx, "HTTPTransport", lambda **_: httpx.MockTransport(handle))
    monkeypatch.setattr(httpx, "AsyncHTTPTransport", lambda **_: httpx.ASGITransport(service.app))  # type: ignore[arg-type]
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"client.md, example {number}", "exec"), names)

"""Looking at recent batches, and who may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from server.metrics import Metrics
from server.settings import Settings
from server.web import create_app
from tests.web.scripted import LOCAL, REMOTE, ScriptedCatalog


class ScriptedBatches:
    """Remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, int]] = []

    def recent(self, *, model: str | None, limit: int, covers: Callable[[str], bool]) -> list[dict[str, Any]]:
        assert covers("digits")
        self.asked.append((model, limit))
        return [{"id": 1}]


@pytest.fixture
def batches() -> ScriptedBatches:
    return ScriptedBatches()


def get(batches: ScriptedBatches, tmp_path: Any, url: str, *, peer: tuple[str, int] = LOCAL) -> httpx.Response:
    app = create_app(ScriptedCatalog(tmp_path), Settings(), Metrics(process=False), batches)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=peer)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(url)

    return asyncio.run(ask())


def test_recent_batches_are_listed(batches: ScriptedBatches, tmp_path: Any) -> None:
    answer = get(batches, tmp_path, "/v1/debug/batches?model=digits&limit=7")
    assert (answer.status_code, answer.json()) == (200, {"batches": [{"id": 1}]})
    assert batches.asked == [("digits", 7)]


@pytest.mark.parametrize("limit", ["0", "513", "many"])
def test_a_limit_that_makes_no_sense_is_refused(batches: ScriptedBatches, tmp_path: Any, limit: str) -> None:
    answer = get(batches, tmp_path, f"/v1/debug/batches?limit={limit}")
    assert answer.status_code == 400
    assert "limit" in answer.json()["error"]


def test_strangers_may_not_look(batches: ScriptedBatches, tmp_path: Any) -> None:
    assert get(batches, tmp_path, "/v1/debug/batches", peer=REMOTE).status_code in {401, 403}
    assert batches.asked == []

"""Pages whose Python needs no server of its own, worked through in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tensorflow as tf

import rowwise
from tests.manual.running import RUN_IN_PROCESS, Reader
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel
from vectorizer import vectorize


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    """The server's web layer over a scripted model, in place of every server: no port has to be free for it."""
    (tmp_path / "server").mkdir()
    service = Service(tmp_path / "server")
    service.catalog.serve(ScriptedModel("sum", 3))

    def handle(request: httpx.Request) -> httpx.Response:
        path, headers = request.url.raw_path.decode(), {**request.headers, "host": "localhost"}
        answer = service.request(request.method, path, content=request.read(), headers=headers)
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content)

    monkeypatch.setattr(httpx, "HTTPTransport", lambda **_: httpx.MockTransport(handle))
    monkeypatch.setattr(httpx, "AsyncHTTPTransport", lambda **_: httpx.ASGITransport(service.app))  # type: ignore[arg-type]
    return service


class _Registrar:
    """Takes a registration as the client does, and vectorizes here instead of sending it."""

    def register(self, *arguments: Any, **options: Any) -> None:
        bound = inspect.signature(rowwise.Client.register).bind(self, *arguments, **options).arguments
        vectorize(arguments[1], inputs=bound["inputs"], buckets=(1, 2))


def _nothing() -> dict[str, Any]:
    return {}


def _exporting() -> dict[str, Any]:
    return {"tf": tf, "predict": lambda x: {"y": tf.reduce_sum(x)}}


def _pipeline() -> dict[str, Any]:
    images = tf.data.Dataset.from_tensor_slices((np.zeros((5, 8, 8, 3), np.uint8), np.arange(5)))
    return {"tf": tf, "dataset": images}


def _per_example() -> dict[str, Any]:
    keys = tf.constant(["a", "b"])
    return {
        "tf": tf,
        "client": _Registrar(),
        "predict": lambda x, weight=1.0: {"y": tf.reduce_sum(x) * weight},
        "table": tf.eye(3),
        "lookup": tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.constant([0, 1])), 2),
        "many_examples": np.ones((11, 64), np.float32),
    }


_GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "docs/client.md": _nothing,
    "docs/converters.md": _nothing,
    "docs/exporting.md": _exporting,
    "docs/per_example_models.md": _per_example,
    "docs/tf_data.md": _pipeline,
}


@pytest.mark.parametrize("page", RUN_IN_PROCESS)
@pytest.mark.usefixtures("service")
def test_what_a_page_shows_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Reader(tmp_path, names=_GIVEN[page]()).work_through(page)

"""The README and the manual beside a real server: what a reader types and runs, and what it prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tensorflow as tf
from server_process import ServerProcess

import rowwise
from tests.manual.running import RUN_BESIDE_A_SERVER, Reader

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

#: Pages whose examples build several models. The tutorial's commands are the README's and some more.
_LONG = ("docs/derivatives.md", "docs/http_api.md", "docs/tutorial.md")
_SCORER = 'import tensorflow as tf\n\ndef predict(x):\n    return tf.linalg.matvec(weights["w"], x) + weights["b"]\n'


class Mix(tf.Module):
    """The model that the pages on protocols ask: two inputs, two outputs."""

    @tf.function(input_signature=[tf.TensorSpec([3], name="x"), tf.TensorSpec([], name="weight")])
    def predict(self, x: tf.Tensor, weight: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"mean": tf.reduce_mean(x) * weight, "top": tf.reduce_max(x) * weight}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's directory, with the files that the pages say one has."""
    path = tmp_path_factory.mktemp("reader")
    mix = Mix()
    tf.saved_model.save(mix, path / "my_saved_model", signatures=mix.predict)
    np.zeros(64, "<f4").tofile(path / "image.f32")
    (path / "scorer.py").write_text(_SCORER)
    np.savez(path / "scorer.npz", w=np.eye(3, dtype=np.float32), b=np.zeros(3, np.float32))
    return path


@pytest.fixture(scope="module")
def reader(server: ServerProcess, directory: Path) -> Iterator[Reader]:
    names: dict[str, Any] = {"tf": tf, "weights": tf.zeros([64, 10])}
    with httpx.Client(base_url=server.url, timeout=300) as http:
        known = {model["model"] for model in http.get("/v1/models").json()["models"]}
        with rowwise.Client(server.url) as client:
            client.register("mix", directory / "my_saved_model", buckets=(1, 8))
        yield Reader(directory, http=server.url.removeprefix("http://"), grpc=server.grpc_address, names=names)
        for model in http.get("/v1/models").json()["models"]:
            if model["model"] not in known:
                http.delete(f"/v1/models/{model['model']}")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.long if page in _LONG else ()) for page in RUN_BESIDE_A_SERVER],
)
def test_what_a_page_shows_happens(
    page: str, reader: Reader, monkeypatch: pytest.MonkeyPatch, server: ServerProcess
) -> None:
    monkeypatch.chdir(reader.directory)
    if page == "docs/derivatives.md":
        body = {"import_path": "models.option_price:predict"}
        httpx.put(server.url + "/v1/models/option?wait=true", json=body, timeout=600).raise_for_status()
    reader.work_through(page)

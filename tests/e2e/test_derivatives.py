"""Derivatives through the real server: declared by a model, built, queued, answered as TensorFlow's own tape says."""

from __future__ import annotations

from itertools import islice
from typing import Any

import httpx
import numpy as np
import pytest
import tensorflow as tf
from server_process import ServerProcess

import models.option_price
from rowwise import Client

pytestmark = pytest.mark.e2e

MODEL = "/v1/models/option"
OPTIONS = list(islice(models.option_price.examples(), 40, 50))
INSTANCES = [{name: value.item() for name, value in option.items()} for option in OPTIONS]


@pytest.fixture(scope="module")
def url(server: ServerProcess) -> str:
    body = {"import_path": "models.option_price:predict", "buckets": [8]}
    httpx.put(server.url + MODEL + "?wait=true", json=body, timeout=300).raise_for_status()
    return server.url


def tape(option: dict[str, Any], names: list[str]) -> tuple[list[Any], list[Any]]:
    """Return gradient and Hessian of one option, by TensorFlow, one at a time."""
    inputs = {name: tf.constant(value) for name, value in option.items()}
    sources = [inputs[name] for name in names]
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(sources)
        with tf.GradientTape() as inner:
            inner.watch(sources)
            price = models.option_price.predict(**inputs)["price"]
        gradient = inner.gradient(price, sources)
    return [g.numpy() for g in gradient], [[outer.gradient(g, s).numpy() for s in sources] for g in gradient]


def test_gradient_of_every_option_is_its_own(url: str) -> None:
    names = ["forward", "strike", "years", "volatility"]
    answer = httpx.post(url + MODEL + ":gradient", json={"instances": INSTANCES})
    assert answer.status_code == 200, answer.text
    for option, row in zip(OPTIONS, answer.json()["predictions"], strict=True):
        assert list(row) == names
        np.testing.assert_allclose([row[name] for name in names], tape(option, names)[0], rtol=1e-9, atol=1e-12)
    columns = {name: [instance[name] for instance in INSTANCES] for name in INSTANCES[0]}
    delta = httpx.post(url + MODEL + "/versions/1:gradient", json={"inputs": columns, "wrt": "forward"}).json()
    assert delta["outputs"] == [row["forward"] for row in answer.json()["predictions"]]


def test_client_gets_the_hessian_in_blocks(url: str) -> None:
    with Client(url) as client:
        rows = client.derivative_many("hessian", "option", INSTANCES, n_per_request=7)
        for option, row in zip(OPTIONS, rows, strict=True):
            assert isinstance(row, dict)
            blocks = [[row[f"{a},{b}"] for b in ("forward", "volatility")] for a in ("forward", "volatility")]
            np.testing.assert_allclose(blocks, tape(option, ["forward", "volatility"])[1], rtol=1e-8, atol=1e-12)
        gamma = client.hessian("option", INSTANCES[0], wrt="forward")
        np.testing.assert_array_equal(gamma, rows[0]["forward,forward"])  # type: ignore[call-overload]


def test_what_is_not_declared_is_400_and_listed(url: str) -> None:
    answer = httpx.post(url + MODEL + ":jacobian", json={"instances": INSTANCES[:1]})
    assert answer.status_code == 400
    assert "it has the gradient of 'price' wrt ['forward', 'strike', 'years', 'volatility']" in answer.json()["error"]


def test_derivatives_are_in_metadata_certificate_costs_and_metrics(url: str) -> None:
    names = ["gradient", "hessian"]
    assert [d["name"] for d in httpx.get(url + MODEL + "/metadata").json()["metadata"]["derivatives"]] == names
    certificate = httpx.get(url + MODEL + "/versions/1/certificate").json()
    assert all(certificate["derivatives"][name]["loops_batched"] == 0 for name in names)
    assert set(httpx.get(url + MODEL + "/versions/1/costs").json()["entries"]) == {"predict", *names}
    httpx.post(url + MODEL + ":gradient", json={"instances": INSTANCES})
    assert 'rowwise_rows_total{entry="gradient",model="option",version="1"}' in httpx.get(url + "/metrics").text

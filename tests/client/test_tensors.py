"""Numbers in binary: what comes back is what JSON would have brought, from the real codec of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import rowwise
from server.signature import LengthAxis, ModelSignature, TensorSignature
from tests.web.scripted import Service
from tests.web.scripted_model import SUM, ScriptedModel

#: Inputs of several dtypes, one of which may be left out.
MIXED = ModelSignature(
    inputs=(
        TensorSignature(name="a", dtype="int8", shape=(2,)),
        TensorSignature(name="b", dtype="float64", shape=()),
    ),
    outputs=(
        TensorSignature(name="y", dtype="float16", shape=(2,)),
        TensorSignature(name="n", dtype="int64", shape=()),
    ),
)
RAGGED = ModelSignature(
    inputs=(TensorSignature(name="x", dtype="float32", shape=("n",)),),
    outputs=(TensorSignature(name="y", dtype="float32", shape=("n",)),),
    axes=(LengthAxis(name="n", max=8, buckets=(4, 8)),),
)


class Server:
    """The web layer over scripted models, asked by clients in this process."""

    def __init__(self, directory: Path) -> None:
        self.service = Service(directory)
        self.asked: list[httpx.Request] = []

    def serve(self, name: str, signature: ModelSignature, outputs: Any = None) -> ScriptedModel:
        model = ScriptedModel(name, 1, signature, outputs=outputs)
        self.service.catalog.serve(model)
        return model

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.service.request(
            request.method, request.url.raw_path.decode(), content=request.read(), headers=dict(request.headers)
        )
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content)

    @property
    def forms(self) -> list[str]:
        """How predictions were asked for."""
        return [request.url.path.rpartition("/")[2].partition(":")[2] or "infer" for request in self.predictions]

    @property
    def predictions(self) -> list[httpx.Request]:
        return [request for request in self.asked if request.method == "POST"]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


@pytest.fixture
def client(server: Server) -> Iterator[rowwise.Client]:
    with rowwise.Client("http://localhost", retries=0, transport=httpx.MockTransport(server.handle)) as made:
        yield made


@pytest.fixture
def by_json(server: Server) -> Iterator[rowwise.Client]:
    transport = httpx.MockTransport(server.handle)
    with rowwise.Client("http://localhost", retries=0, binary=False, transport=transport) as made:
        yield made


def test_numbers_travel_in_binary_and_come_back_as_arrays(client: rowwise.Client, server: Server) -> None:
    model = server.serve("sum", SUM)
    for given in (
        [1, 2, 3],
        (1.5, 2.5, 2.0),
        np.float64([1, 2, 3]),
        np.arange(1, 4),
        np.float32([0.1, 0.2, 0.3])[::-1],
    ):
        total = client.predict("sum", x=given)
        assert isinstance(total, np.ndarray)
        assert (total.dtype, total.shape, total.flags.writeable) == (np.float32, (), True)
        assert total == np.float32(np.sum(np.float32(given)))
        np.testing.assert_array_equal(model.rows[-1].columns[0], np.float32([given]))
    assert set(server.forms) == {"infer"}
    assert server.predictions[0].headers["x-request-timeout-ms"] == "30000"


def test_many_examples_are_tensors_of_many_rows(client: rowwise.Client, server: Server) -> None:
    model = server.serve("sum", SUM)
    examples = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    totals = client.predict_many("sum", examples, n_per_request=4)
    np.testing.assert_allclose(np.stack(totals), examples.sum(1), rtol=1e-6)
    assert [rows.n for rows in model.rows] == [4, 4, 2]
    mixed = client.predict_many("sum", [{"x": examples[0]}, examples[1]])
    np.testing.assert_array_equal(np.stack(mixed), np.stack(totals[:2]))
    assert client.predict_many("sum", []) == []


def test_answers_are_those_of_json_to_the_bit(client: rowwise.Client, by_json: rowwise.Client, server: Server) -> None:
    outputs = [np.float16([[0.1, -np.inf], [65504, 6e-8]]), np.int64([2**62 + 1, -(2**63)])]
    server.serve("mixed", MIXED, outputs)
    examples = [{"a": [1, -128], "b": 0.1}, {"a": np.int64([3, 127]), "b": np.nan}]
    for binary, json in zip(
        client.predict_many("mixed", examples), by_json.predict_many("mixed", examples), strict=True
    ):
        assert isinstance(binary, dict)
        assert isinstance(json, dict)
        for name in ("y", "n"):
            assert (binary[name].dtype, binary[name].shape) == (json[name].dtype, json[name].shape)
            np.testing.assert_array_equal(binary[name], json[name])
    assert server.forms == ["infer", "predict"]


@pytest.mark.parametrize(
    "example",
    [
        {"a": [1, 300], "b": 0.0},
        {"a": [1, 2.5], "b": 0.0},
        {"a": [1, 2.0], "b": 0.0},
        {"a": [1], "b": 0.0},
        {"a": [[1, 2]], "b": 0.0},
        {"a": [1, True], "b": "text"},
        {"a": [1, None], "b": 0.0},
    ],
)
def test_what_the_model_does_not_take_is_refused_as_by_json(
    client: rowwise.Client, by_json: rowwise.Client, server: Server, example: dict[str, Any]
) -> None:
    server.serve("mixed", MIXED, [np.float16([[0, 0]]), np.int64([0])])
    sentences = []
    for one in (client, by_json):
        with pytest.raises((rowwise.InvalidRequest, rowwise.WrongInputs)) as caught:
            one.predict("mixed", **example)
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]


def test_too_large_a_number_is_refused_as_by_json(client: rowwise.Client, server: Server) -> None:
    server.serve("sum", SUM)
    with pytest.raises(rowwise.InvalidRequest):
        client.predict("sum", x=[1e300, 0, 0])
    assert client.predict("sum", x=[np.inf, 0, 0]) == np.inf


def test_examples_of_different_lengths_travel_as_json_and_one_alone_in_binary(
    client: rowwise.Client, server: Server
) -> None:
    model = server.serve("ragged", RAGGED)
    model.outputs = [[np.float32([1, 2, 3])]]
    np.testing.assert_array_equal(client.predict("ragged", x=[1, 2, 3]), np.float32([1, 2, 3]))
    model.outputs = [[np.float32([1]), np.float32([2, 3])]]
    first, second = client.predict_many("ragged", [[1], [2, 3]])
    assert (first.tolist(), second.tolist()) == ([1], [2, 3])  # type: ignore[union-attr]
    assert server.forms == ["infer", "predict"]


def test_another_version_with_other_inputs_is_noticed_by_its_answers(client: rowwise.Client, server: Server) -> None:
    server.serve("m", SUM)
    client.predict("m", x=[1, 2, 3])
    server.service.catalog.served.clear()
    server.serve("m", MIXED, [np.float16([[1, 2]]), np.int64([5])])
    answer = client.predict("m", a=[1, 2], b=1.0)
    assert isinstance(answer, dict)
    assert answer["n"] == 5


def test_arrays_of_an_answer_share_nothing_that_a_change_would_show(client: rowwise.Client, server: Server) -> None:
    server.serve("mixed", MIXED, [np.float16([[1, 2], [3, 4]]), np.int64([5, 6])])
    first, second = client.predict_many("mixed", [{"a": [1, 2], "b": 1.0}] * 2)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    first["y"][:] = 9
    assert second["y"].tolist() == [3, 4]
    assert first["n"] == 5


def test_the_asynchronous_client_is_answered_the_same(server: Server) -> None:
    server.serve("sum", SUM)

    async def run() -> list[Any]:
        transport = httpx.ASGITransport(server.service.app)  # type: ignore[arg-type]
        async with rowwise.AsyncClient("http://localhost", transport=transport) as client:
            one = await client.predict("sum", x=[1, 2, 3])
            many = await client.predict_many("sum", [[1, 2, 3], [4, 5, 6]], n_per_request=1)
            several = await asyncio.gather(*(client.predict("sum", x=[n, 0, 0]) for n in range(20)))
            listed = await client.models()
            with pytest.raises(rowwise.NotFound):
                await client.predict("nobody", x=1)
            return [float(one), [float(each) for each in many], [float(each) for each in several], listed[0].model]  # type: ignore[arg-type]

    assert asyncio.run(run()) == [6.0, [6.0, 15.0], [float(n) for n in range(20)], "sum"]

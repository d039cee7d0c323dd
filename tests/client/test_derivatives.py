"""Derivatives through the client: which is asked for, and what becomes of the answer."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest

import rowwise
from rowwise.errors import InvalidRequest, WrongInputs


def tensor(dtype: str) -> dict[str, Any]:
    return {"name": "", "dtype": dtype, "tensor_shape": {"dim": []}}


METADATA = {
    "metadata": {
        "signature_def": {
            "signature_def": {
                "serving_default": {
                    "inputs": {"x": tensor("DT_FLOAT"), "y": tensor("DT_DOUBLE")},
                    "outputs": {"loss": tensor("DT_FLOAT")},
                },
                "gradient": {
                    "inputs": {"x": tensor("DT_FLOAT"), "y": tensor("DT_DOUBLE")},
                    "outputs": {"x": tensor("DT_FLOAT"), "y": tensor("DT_DOUBLE")},
                },
                "hessian": {
                    "inputs": {"x": tensor("DT_FLOAT"), "y": tensor("DT_DOUBLE")},
                    "outputs": {
                        "x,x": tensor("DT_FLOAT"),
                        "x,y": tensor("DT_DOUBLE"),
                        "y,x": tensor("DT_FLOAT"),
                        "y,y": tensor("DT_DOUBLE"),
                    },
                },
            }
        },
        "derivatives": [
            {"name": "gradient", "kind": "gradient", "output": "loss", "wrt": ["x", "y"]},
            {"name": "hessian", "kind": "hessian", "output": "loss", "wrt": ["x", "y"]},
        ],
    }
}
EXAMPLE = {"x": 1.0, "y": 2.0}


class Server:
    """Answers derivatives with ``row``, or refuses with ``refusal``."""

    def __init__(self) -> None:
        self.row: Any = None
        self.refusal: str | None = None
        self.asked: list[tuple[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=METADATA)
        self.asked.append((request.url.path, json.loads(request.content)))
        if self.refusal is not None:
            return httpx.Response(400, json={"error": self.refusal})
        return httpx.Response(200, json={"predictions": [self.row] * len(self.asked[-1][1]["instances"])})


@pytest.fixture
def served() -> Server:
    return Server()


@pytest.fixture
def remote(served: Server) -> rowwise.Client:
    return rowwise.Client("http://rowwise", transport=httpx.MockTransport(served))


def test_results_by_several_come_by_name_in_their_own_dtypes(served: Server, remote: rowwise.Client) -> None:
    served.row = {"x": 0.5, "y": 0.25}
    got = remote.gradient("m", EXAMPLE)
    assert isinstance(got, dict)
    assert {name: value.dtype for name, value in got.items()} == {"x": np.float32, "y": np.float64}
    assert served.asked == [("/v1/models/m:gradient", {"instances": [EXAMPLE]})]


def test_a_result_by_one_is_a_bare_array_in_its_dtype(served: Server, remote: rowwise.Client) -> None:
    served.row = 0.25
    got = remote.gradient("m", EXAMPLE, wrt="y", output="loss", version=3)
    assert (got, got.dtype) == (0.25, np.float64)  # type: ignore[union-attr]
    path, body = served.asked[0]
    assert path == "/v1/models/m/versions/3:gradient"
    assert body == {"output": "loss", "wrt": ["y"], "instances": [EXAMPLE]}
    hessian = remote.hessian("m", EXAMPLE, wrt=["x"])
    assert hessian.dtype == np.float32  # type: ignore[union-attr]


def test_many_examples_go_in_several_requests(served: Server, remote: rowwise.Client) -> None:
    served.row = {"x": 0.5, "y": 0.25}
    assert len(remote.derivative_many("gradient", "m", [EXAMPLE] * 5, n_per_request=2)) == 5
    assert [len(body["instances"]) for _, body in served.asked] == [2, 2, 1]


def test_what_the_model_does_not_declare_is_refused_in_the_servers_words(
    served: Server, remote: rowwise.Client
) -> None:
    served.refusal = "model 'm' declares no jacobian; it has the gradient of 'loss'"
    with pytest.raises(InvalidRequest, match="declares no jacobian"):
        remote.jacobian("m", EXAMPLE)
    with pytest.raises(WrongInputs, match="expected gradient, jacobian, hessian"):
        remote.derivative_many("jacobean", "m", [EXAMPLE])

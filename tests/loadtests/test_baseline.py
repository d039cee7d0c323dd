"""The hand-made baseline answers right: it has to lose by its speed alone."""

from __future__ import annotations

import orjson
import pytest
from fastapi.testclient import TestClient

from loadtests import workload
from loadtests.baseline import create_app, per_example


@pytest.mark.parametrize("model", ["embedding", pytest.param("implied_volatility", marks=pytest.mark.long)])
def test_the_baseline_gives_the_answers_of_the_model(model: str) -> None:
    made = workload.build(model)
    with TestClient(create_app({model: per_example(f"{workload.MODELS[model]}:predict")})) as client:
        assert client.get("/v2/health/ready").status_code == 200
        for index in range(0, len(made.bodies), 40):
            answer = client.post(made.path, content=made.bodies[index])
            assert answer.status_code == 200
            assert made.accepts(index, answer.content)
        several = {"instances": [orjson.loads(body)["instances"][0] for body in made.bodies[:3]]}
        predictions = client.post(made.path, content=orjson.dumps(several)).json()["predictions"]
        assert workload.equal(predictions, list(made.answers[:3]), tolerance=made.tolerance)
        assert client.post("/v1/models/other:predict", content=b"{}").status_code == 404

"""The forms of request that are measured against each other ask the same and accept the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from loadtests.forms import FORMS, InferWorkload, forms_of
from loadtests.workload import Workload
from server.protocol import TFS_JSON, OipFormat
from tests.protocol.oip_models import Model, model, tensor

#: Sequences of two numbers each, of differing length: headers of one and of two digits.
SEQUENCES = [[[1.0, 2.0]], [[3.0, 4.0]] * 8]
ROWS = [[1.0, 2.0], [3.0, 4.0]]
ASKED: Model = model(tensor("image", "float32", 2), outputs=[tensor("probabilities", "float32", 3)])


def wire_of(workload: Workload, index: int) -> Any:
    if not isinstance(workload, InferWorkload):
        return TFS_JSON
    return OipFormat(workload.n_jsons[index] if workload.n_jsons else None)


def test_examples_of_differing_length_are_asked_in_every_form_that_tells_it() -> None:
    asked = model(tensor("steps", "float32", "n", 2), outputs=[tensor("y", "float32")])
    bodies = tuple(orjson.dumps({"instances": [row]}) for row in SEQUENCES)
    forms = forms_of(Workload(model="m", bodies=bodies, answers=(0.5, 1.0)), name="steps", output="y")
    assert set(forms) == set(FORMS) - {"infer, raw"}
    for workload in forms.values():
        for index, body in enumerate(workload.bodies):
            request = wire_of(workload, index).decode(body, asked, max_instances=1)
            (column,) = request.rows.columns
            assert [row.tolist() for row in column] == [SEQUENCES[index]]
    requests = forms["infer, binary"].requests("host")
    lengths = [int(request.partition(b"Inference-Header-Content-Length: ")[2].split()[0]) for request in requests]
    assert lengths[0] < lengths[1]


@pytest.mark.parametrize("form", FORMS)
def test_each_form_asks_the_same_and_accepts_the_right_answer_alone(form: str) -> None:
    bodies = tuple(orjson.dumps({"instances": [row]}) for row in ROWS)
    predict = Workload(model="m", bodies=bodies, answers=([0.5, 0.25, 0.25], [1.0, 0.0, 0.0]))
    workload = forms_of(predict, name="image", output="probabilities")[form]
    assert [request.count(b"\r\n\r\n") for request in workload.requests("host")] == [1, 1]
    for index, body in enumerate(workload.bodies):
        wire = wire_of(workload, index)
        request = wire.decode(body, ASKED, max_instances=1)
        assert np.asarray(request.rows.columns[0]).tolist() == [ROWS[index]]
        answer, _ = request.encode([np.array([predict.answers[index]], np.float32)])
        assert workload.accepts(index, answer)
        assert not workload.accepts(1 - index, answer)
        assert not workload.accepts(index, answer[:-1])
        assert not workload.accepts(index, b"")

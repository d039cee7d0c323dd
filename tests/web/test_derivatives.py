"""``:gradient``, ``:jacobian`` and ``:hessian``: which derivative a request gets, in TensorFlow Serving's forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from server.artifact import DerivativeEntry
from server.derivatives import ServedDerivative
from server.protocol import Rows
from server.signature import ModelSignature, TensorSignature
from server.web.derivatives import DerivativeQuery, read_query
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedAnswer, ScriptedModel, ScriptedTicket

X = TensorSignature(name="x", dtype="float32", shape=(2,))
Y = TensorSignature(name="y", dtype="float32", shape=())


@dataclass
class ScriptedDerivative(ScriptedModel):
    """Answers with its inputs, each times ten: what a result is, shows where it comes from."""

    signature: ModelSignature = field(default=ModelSignature(inputs=(X, Y), outputs=(X, Y)))

    def predict(self, rows: Rows, **options: Any) -> Any:
        given = {tensor.name: column for tensor, column in zip(self.signature.inputs, rows.columns, strict=True)}
        if self.outputs is None:
            results = [np.asarray(given[tensor.name]) * np.float32(10) for tensor in self.signature.outputs]
            options["on_done"](ScriptedAnswer(outputs=results))
            self.timeouts_s.append(options["timeout_s"])
            return ScriptedTicket()
        return super().predict(rows, **options)


def derivative(kind: str, output: str, wrt: Sequence[str], *, entry: str, outputs: Any = (X, Y)) -> Any:
    signature = ModelSignature(inputs=(X, Y), outputs=outputs)
    described = DerivativeEntry(kind=kind, output=output, wrt=tuple(wrt), signature=signature)
    model = ScriptedDerivative("sum", 3, signature, entry=entry)
    return ServedDerivative(described=described, model=model)  # type: ignore[arg-type]


GRADIENT = derivative("gradient", "loss", ("x", "y"), entry="gradient")
OF_TOTAL = derivative("jacobian", "total", ("x",), entry="jacobian_total", outputs=(X,))
OF_OTHER = derivative("jacobian", "other", ("x", "y"), entry="jacobian_other")
HESSIAN = derivative(
    "hessian",
    "loss",
    ("x", "y"),
    entry="hessian",
    outputs=tuple(TensorSignature(name=name, dtype="float32", shape=()) for name in ("x,x", "x,y", "y,x", "y,y")),
)
INSTANCE = {"x": [1.0, 2.0], "y": 3.0}
GRADIENT_ROW = {"x": [10.0, 20.0], "y": 30.0}


@pytest.fixture
def model(service: Service) -> ScriptedModel:
    return service.catalog.serve(ScriptedModel("sum", 3, derivatives=(GRADIENT, OF_TOTAL, OF_OTHER, HESSIAN)))


@pytest.mark.parametrize("path", ["sum", "sum/versions/3", "sum/labels/stable"])
def test_row_form_is_answered_in_row_form(service: Service, path: str) -> None:
    service.catalog.serve(ScriptedModel("sum", 3, derivatives=(GRADIENT,)), labels={"stable": ""})
    answer = service.predict({"instances": [INSTANCE, INSTANCE]}, f"/v1/models/{path}:GRADIENT")
    assert answer.json() == {"predictions": [GRADIENT_ROW] * 2}


def test_column_form_is_answered_in_column_form(service: Service, model: ScriptedModel) -> None:
    columns = {"x": [[1.0, 2.0]], "y": [3.0]}
    answer = service.predict({"inputs": columns}, "/v1/models/sum:gradient")
    assert answer.json() == {"outputs": {"x": [[10.0, 20.0]], "y": [30.0]}}


@pytest.mark.parametrize(
    ("verb", "query", "row"),
    [
        ("gradient", {"wrt": "x"}, [10.0, 20.0]),
        ("gradient", {"wrt": ["y"], "output": "loss"}, 30.0),
        ("gradient", {"wrt": ["y", "x"]}, GRADIENT_ROW),
        ("jacobian", {"output": "total"}, [10.0, 20.0]),
        ("jacobian", {"output": "other"}, GRADIENT_ROW),
        ("jacobian", {"wrt": ["x", "y"]}, GRADIENT_ROW),
        # Both can; one of them was declared for exactly this.
        ("jacobian", {"wrt": "x"}, [10.0, 20.0]),
    ],
)
def test_output_and_wrt_choose_and_results_that_were_not_asked_for_are_left_out(
    service: Service, model: ScriptedModel, verb: str, query: dict[str, Any], row: Any
) -> None:
    answer = service.predict({"instances": [INSTANCE], **query}, f"/v1/models/sum:{verb}")
    assert answer.json() == {"predictions": [row]}


def test_hessian_by_one_of_several_is_its_own_block(service: Service, model: ScriptedModel) -> None:
    HESSIAN.model.outputs = [np.full(1, value, np.float32) for value in (1.0, 2.0, 3.0, 4.0)]
    answer = service.predict({"instances": [INSTANCE], "wrt": "y"}, "/v1/models/sum:hessian")
    assert answer.json() == {"predictions": [4.0]}


@pytest.mark.parametrize(
    ("verb", "query", "says"),
    [
        ("jacobian", {}, "say which jacobian by 'output' and 'wrt'; it has the jacobian of 'total' wrt ['x']; the"),
        ("gradient", {"output": "total"}, "no gradient of output 'total', wrt None; it has the gradient of 'loss'"),
        ("gradient", {"wrt": ["x", "z"]}, "no gradient of output None, wrt ['x', 'z']"),
        ("gradient", {"wrt": []}, "'wrt': expected the name of an input or variable, or a list, got []"),
        ("gradient", {"output": 1}, "'output': expected the name of an output, got 1"),
    ],
)
def test_choices_that_find_none_or_several_are_400_and_list_what_there_is(
    service: Service, model: ScriptedModel, verb: str, query: dict[str, Any], says: str
) -> None:
    answer = service.predict({"instances": [INSTANCE], **query}, f"/v1/models/sum:{verb}")
    assert answer.status_code == 400
    assert says in answer.json()["error"]


def test_models_without_derivatives_say_how_to_declare_one(service: Service) -> None:
    service.catalog.serve(ScriptedModel("sum", 3))
    answer = service.predict({"instances": [[1, 2, 3]]}, "/v1/models/sum:jacobian")
    assert answer.status_code == 400
    assert '"derivatives": [{"kind": "jacobian"}]' in answer.json()["error"]
    service.catalog.serve(ScriptedModel("sum", 3, derivatives=(GRADIENT,)))
    answer = service.predict({"instances": [[1, 2, 3]]}, "/v1/models/sum:jacobian")
    assert "declares no jacobian; it has the gradient of 'loss'" in answer.json()["error"]


def test_a_derivatives_errors_and_deadline_are_those_of_a_prediction(service: Service, model: ScriptedModel) -> None:
    path = "/v1/models/sum:gradient"
    assert service.request("GET", path).status_code == 405
    assert service.predict(b"{", path).status_code == 400
    assert service.predict({"instances": [{"x": [1.0]}], "wrt": "x"}, path).status_code == 400
    service.predict({"instances": [INSTANCE]}, path, headers={"X-Request-Timeout-Ms": "250"})
    assert GRADIENT.model.timeouts_s[-1] == 0.25


def test_requests_are_counted_by_their_entry_point(service: Service, model: ScriptedModel) -> None:
    service.predict({"instances": [INSTANCE]}, "/v1/models/sum:gradient")
    service.predict({"instances": [INSTANCE], "output": "none"}, "/v1/models/sum:gradient")
    labels = {"model": "sum", "version": "3"}
    assert service.counted("rowwise_requests_total", **labels, entry="gradient", code="200") == 1
    assert service.counted("rowwise_requests_total", **labels, entry="predict", code="400") == 1
    service.metrics.forget("sum", 3)
    assert service.counted("rowwise_requests_total", **labels, entry="gradient", code="200") == 0


def test_metadata_lists_the_derivatives(service: Service, model: ScriptedModel) -> None:
    metadata = service.request("GET", "/v1/models/sum/metadata").json()["metadata"]
    assert metadata["derivatives"][1] == {"name": "jacobian_total", "kind": "jacobian", "output": "total", "wrt": ["x"]}
    definition = metadata["signature_def"]["signature_def"]["gradient"]
    assert definition["method_name"] == "rowwise/gradient"
    assert list(definition["outputs"]) == ["x", "y"]


def test_numbers_pass_the_choice_unchanged() -> None:
    body = b'{"wrt": ["x"], "instances": [[0.1, 1e-45, NaN, -Infinity, 9007199254740993]]}'
    query, rest = read_query(body)
    assert query == DerivativeQuery(wrt=("x",))
    assert rest == b'{"instances": [[0.1, 1e-45, NaN, -Infinity, 9007199254740993]]}'
    # An input may be called so; then there is no choice in the body.
    named = b'{"instances": [{"output": 1}]}'
    assert read_query(named) == (DerivativeQuery(), named)

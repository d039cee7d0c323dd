"""What a derivative is of and by: found by name, or refused with what there is."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import DeclarationError, Derivative, Output, trace_example
from vectorizer.derivatives.choice import choose, parameters

KERNEL = tf.Variable(tf.ones([3]), name="kernel")
COUNTS = tf.Variable(tf.ones([2], tf.int32), name="counts")
TWINS = [tf.Variable(tf.ones([2]), name="twin") for _ in range(2)]


def serve(x: tf.Tensor, y: tf.Tensor, ids: tf.Tensor) -> dict[str, tf.Tensor]:
    return {
        "scores": x * KERNEL + tf.reduce_sum(TWINS[0] * TWINS[1]) * y,
        "loss": tf.reduce_sum(x) * y,
        "best": tf.reduce_sum(ids + COUNTS),
    }


FUNCTION = trace_example(serve, {"x": spec(3), "y": spec(), "ids": spec(2, dtype=tf.int32)})
OUTPUTS = [
    Output(name=name, dtype=tensor.dtype, dims=tuple(tensor.shape.as_list()))
    for name, tensor in zip(FUNCTION.output_names, FUNCTION.concrete.outputs, strict=True)
]


def chosen(*derivatives: Derivative) -> Any:
    return choose(derivatives, FUNCTION, (), OUTPUTS)


def test_the_only_scalar_output_and_every_float_input_are_taken() -> None:
    (choice,) = chosen(Derivative(kind="gradient"))
    assert (choice.name, choice.output.name, choice.bare) == ("gradient", "loss", False)
    assert [(result.name, result.dims) for result in choice.results] == [("x", (3,)), ("y", ())]


@pytest.mark.parametrize(("wrt", "bare"), [("kernel", True), (("kernel",), False), (KERNEL, True), ("kernel:0", True)])
def test_one_name_answers_bare_and_a_list_of_one_by_name(wrt: Any, *, bare: bool) -> None:
    (choice,) = chosen(Derivative(kind="jacobian", output="scores", wrt=wrt))
    assert choice.bare is bare
    assert [(result.name, result.dims) for result in choice.results] == [("kernel", (3, 3))]


def test_variables_of_the_same_name_are_numbered() -> None:
    assert [name for name in parameters(FUNCTION) if name.startswith("twin")] == ["twin", "twin_1"]
    (choice,) = chosen(Derivative(kind="jacobian", output="scores", wrt=TWINS))
    assert [source.variable for source in choice.sources] == TWINS
    assert {source.name for source in choice.sources} == {"twin", "twin_1"}


def test_several_of_a_kind_are_told_apart_by_what_differs() -> None:
    names = [
        choice.name
        for choice in chosen(
            Derivative(kind="gradient"),
            Derivative(kind="jacobian", output="scores", wrt="x"),
            Derivative(kind="jacobian", output="loss", wrt="x"),
            Derivative(kind="vjp", output="loss", wrt="x"),
            Derivative(kind="vjp", output="loss", wrt="y"),
            Derivative(kind="hessian", name="curvature"),
        )
    ]
    assert names == ["gradient", "jacobian_scores", "jacobian_loss", "vjp_loss_x", "vjp_loss_y", "curvature"]


@pytest.mark.parametrize(
    ("derivative", "told"),
    [
        (Derivative(kind="gradient", output="scores"), r"'scores' is float32\[3\]; scalar float outputs: loss"),
        (Derivative(kind="jacobian"), "say which output .*float outputs: scores, loss"),
        (Derivative(kind="jacobian", output="best"), r"'best' is int32\[\]; float outputs: scores, loss"),
        (Derivative(kind="jacobian", output="score"), "no output 'score'"),
        (Derivative(kind="gradient", wrt="ids"), "'ids' is int32, not a float; .*inputs x, y and the variables kernel"),
        (Derivative(kind="gradient", wrt="counts"), "'counts' is int32, not a float"),
        (Derivative(kind="gradient", wrt="z"), "no 'z'; it can be differentiated by the inputs x, y"),
        (Derivative(kind="gradient", wrt=tf.Variable(1.0, name="other")), "no the .*'other:0'"),
        (Derivative(kind="gradient", wrt=("x", "x")), "once"),
        (Derivative(kind="gradient", wrt=()), "once"),
    ],
)
def test_what_can_not_be_differentiated_is_refused_with_what_can(derivative: Derivative, told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        chosen(derivative)


def test_names_that_collide_are_refused() -> None:
    with pytest.raises(DeclarationError, match="called 'd'"):
        chosen(Derivative(kind="gradient", name="d"), Derivative(kind="hessian", name="d"))
    with pytest.raises(DeclarationError, match="got dict"):
        chosen({"kind": "gradient"})  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"kind": "jacobean"}, {"kind": "jacobian", "max_parallel": 0}])
def test_malformed_declarations_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=r"expected a kind|at least 1"):
        Derivative(**options)


def test_functions_without_floats_have_no_derivative() -> None:
    function = trace_example(lambda ids: tf.cast(ids, tf.float32), {"ids": spec(dtype=tf.int32)})
    output = Output(name="output", dtype=tf.float32, dims=())
    with pytest.raises(DeclarationError, match=r"none of the inputs is a float"):
        choose([Derivative(kind="gradient")], function, (), [output])


def test_results_whose_size_differs_from_row_to_row_are_not_offered() -> None:
    differing = [Output(name="scores", dtype=tf.float32, dims=(None,)), *OUTPUTS[1:]]
    with pytest.raises(DeclarationError, match=r"'scores' is float32\['differs'\]; float outputs: loss"):
        choose([Derivative(kind="jacobian", output="scores")], FUNCTION, (), differing)

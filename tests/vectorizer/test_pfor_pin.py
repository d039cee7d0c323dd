"""What ``vectorizer/_pfor`` relies on in TensorFlow's private modules, each by its name.

A failure here after an upgrade of TensorFlow says what to look at before anything else does.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.ops.parallel_for import pfor as stock

from tests.vectorizer.oracle import spec
from vectorizer import VectorizerError, _pfor, vectorize
from vectorizer._pfor import conversion, graphs, registry, values

X = {"x": spec(3)}


def private_names() -> Iterator[tuple[str, str]]:
    """Every ``module, attribute`` of TensorFlow's private modules that the package mentions, read from its source."""
    tree = ast.parse("\n".join(inspect.getsource(module) for module in (conversion, graphs, registry, values)))
    aliases = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tensorflow.python")
        for alias in node.names
        if alias.asname
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield aliases[node.value.id], node.attr


def test_version_is_the_one_that_this_was_tested_with() -> None:
    assert tf.__version__.split(".")[:2] == ["2", "21"]


def test_every_private_name_exists() -> None:
    names = sorted(set(private_names()))
    assert len(names) >= 10
    missing = [f"{module}.{name}" for module, name in names if not hasattr(importlib.import_module(module), name)]
    assert missing == []


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (
            stock.PFor.__init__,
            "loop_var loop_len pfor_ops fallback_to_while_loop all_indices all_indices_partitioned pfor_config",
        ),
        (stock.PFor._add_conversion, "old_output new_output"),
        (stock.PFor._convert_helper, "op_or_tensor"),
        (stock.PFor.convert, "y"),
        (stock._fallback_converter, "pfor_input root_cause"),
        (stock._convert_function_call, "func converter inputs"),
        (stock._is_stateful_pfor_op, "op"),
        (stock.wrap, "tensor is_stacked"),
        (stock._PforInput.stacked_input, "index"),
        (stock._PforInput.unstacked_input, "index"),
        (stock._PforInput.input, "index"),
        (stock._PforInput.get_attr, "attr"),
    ],
)
def test_signature_is_as_it_was(function: Callable[..., Any], parameters: str) -> None:
    assert set(parameters.split()) <= set(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", ["op", "op_type", "inputs", "outputs", "pfor", "num_inputs"])
def test_converters_input_has_its_properties(name: str) -> None:
    assert hasattr(stock._PforInput, name)


def test_wrapped_tensor_says_whether_it_is_stacked() -> None:
    with tf.Graph().as_default():
        wrapped = stock.wrap(tf.constant([1.0]), True)
    assert (wrapped.is_stacked, wrapped.is_sparse_stacked) == (True, False)
    assert wrapped.t.shape == (1,)


def test_registry_is_a_dict_that_is_looked_up_as_a_global_at_each_op() -> None:
    """This is what makes it possible to put another one in its place for a while."""
    assert type(stock._pfor_converter_registry) is dict
    assert {"MatMul", "Reshape", "AddV2", "While", "StatelessIf"} <= stock._pfor_converter_registry.keys()
    source = inspect.getsource(stock.PFor._convert_helper)
    assert "_pfor_converter_registry.get(" in source
    assert issubclass(stock.ConversionNotImplementedError, Exception)
    assert not issubclass(registry.ConversionAborted, Exception), "pfor's own handler would log it and hide its cause"


def test_effects_are_told_from_reads() -> None:
    variable = tf.Variable(1.0)

    def ops(function: Callable[[], Any], op_type: str) -> list[bool]:
        graph = tf.function(function).get_concrete_function().graph
        return [_pfor.is_stateful(op) for op in graph.get_operations() if op.type == op_type]

    assert ops(lambda: variable + 1.0, "AddV2") == [False]
    assert ops(lambda: tf.random.normal([1]), "RandomStandardNormal") == [True]
    assert ops(lambda: variable.assign_add(1.0), "AssignAddVariableOp") == [True]


def succeed() -> None:
    vectorize(lambda x: tf.tanh(x) @ tf.ones([3, 1]) if x.shape.rank == 2 else tf.tanh(x), inputs=X, buckets=(2,))


def fail_in_a_converter() -> None:
    def broken(pfor_input: Any) -> Any:
        raise RuntimeError("broken")

    with pytest.raises(VectorizerError):
        vectorize(lambda x: tf.tanh(x) + 1.0, inputs=X, buckets=(2,), converters={"Tanh": broken})


def fail_by_looping() -> None:
    with pytest.raises(VectorizerError):
        vectorize(lambda x: tf.io.serialize_tensor(-x), inputs=X, buckets=(2,))


def interrupt() -> None:
    def interrupted(pfor_input: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vectorize(lambda x: tf.tanh(x) + 1.0, inputs=X, buckets=(2,), converters={"Tanh": interrupted})


@pytest.mark.parametrize("happen", [succeed, fail_in_a_converter, fail_by_looping, interrupt])
def test_tensorflows_own_registry_is_as_it_was_after_a_conversion(happen: Callable[[], None]) -> None:
    registry, call = stock._pfor_converter_registry, stock._convert_function_call
    before = dict(registry)
    happen()
    assert stock._pfor_converter_registry is registry
    assert stock._convert_function_call is call
    assert registry == before
    assert tf.vectorized_map(lambda x: tf.tanh(x) * 2.0, tf.ones([3, 2])).shape == (3, 2)

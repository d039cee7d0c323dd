"""What a registration says of a function, and what is wrong with it."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from server.build.declaration import (
    Declaration,
    declaration_of_function,
    declaration_of_saved_model,
    declaration_of_signature,
)
from server.build.errors import SourceRefused
from server.build.importing import import_function
from server.spec import InputSpec, ModelSpec
from vectorizer import Length

X = {"x": {"dtype": "float32", "shape": [2]}}


def module(**members: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**members)


def declare(own: types.SimpleNamespace, function: Any = tf.identity, **spec: Any) -> Declaration:
    return declaration_of_function(function, own, ModelSpec.model_validate(spec))


def test_module_says_its_inputs_options_and_examples() -> None:
    examples = [{"x": np.zeros(k, np.float32)} for k in range(40)]
    declared = declare(
        module(
            INPUTS={"x": tf.TensorSpec([None], tf.float32), "n": tf.TensorSpec([], tf.int32)},
            SPEC={"inputs": {"x": {"max": 64, "length_input": "n", "lengths": [8, 64]}}, "buckets": [4, 1, 4]},
            examples=lambda: iter(examples),
        )
    )
    assert dict(declared.inputs) == {"x": tf.TensorSpec([None], tf.float32), "n": tf.TensorSpec([], tf.int32)}
    assert dict(declared.lengths) == {"x": Length(max=64, buckets=(8, 64), length_input="n")}
    assert declared.buckets == (1, 4)
    assert len(declared.examples) == 16
    assert declared.examples[3] is examples[3]


def test_request_goes_before_what_the_module_says() -> None:
    declared = declare(
        module(INPUTS={"x": tf.TensorSpec([3], tf.float32)}, SPEC={"max_batch": 8, "tolerance": 0.1}),
        inputs=X,
        max_batch=16,
    )
    assert declared.inputs["x"].shape.as_list() == [2]
    assert declared.spec.max_batch == 16
    assert declared.spec.tolerance == 0.1


def test_marked_function_carries_its_own_inputs() -> None:
    def predict(x: Any) -> Any:
        return x

    predict.__rowwise_inputs__ = {"x": InputSpec(dtype="int64", shape=(4,))}  # type: ignore[attr-defined]
    predict.__rowwise_spec__ = {"max_batch": 2}  # type: ignore[attr-defined]
    declared = declare(module(INPUTS={"other": tf.TensorSpec([], tf.bool)}), predict)
    assert dict(declared.inputs) == {"x": tf.TensorSpec([4], tf.int64)}
    assert declared.spec.max_batch == 2


def test_inputs_can_be_annotations() -> None:
    def predict(x: tf.TensorSpec([4], tf.int64), scale: tf.TensorSpec([])) -> tf.Tensor:  # type: ignore[valid-type]
        return x * scale

    predict.__annotations__ = {"x": tf.TensorSpec([4], tf.int64), "scale": "tf.TensorSpec([])"}
    declared = declare(module(INPUTS={"other": tf.TensorSpec([], tf.bool)}), predict)
    assert dict(declared.inputs) == {"x": tf.TensorSpec([4], tf.int64), "scale": tf.TensorSpec([], tf.float32)}


@pytest.mark.parametrize("annotations", [{"x": "Missing[4]"}, {"x": tf.Tensor}, {}])
def test_annotations_that_declare_nothing_leave_it_to_the_module(annotations: dict[str, Any]) -> None:
    def predict(x):  # type: ignore[no-untyped-def]
        return x

    predict.__annotations__ = annotations
    declared = declare(module(INPUTS={"x": tf.TensorSpec([3], tf.bool)}), predict)
    assert dict(declared.inputs) == {"x": tf.TensorSpec([3], tf.bool)}


def test_a_derivative_can_be_said_by_its_kind() -> None:
    declared = declare(module(), inputs=X, derivatives=["gradient", {"kind": "hessian", "wrt": "x"}])
    assert [(each.kind, each.wrt) for each in declared.spec.derivatives] == [("gradient", None), ("hessian", "x")]


@pytest.mark.parametrize(
    ("asked", "buckets"),
    [
        ({}, (1, 2, 4, 8, 16, 32, 64)),
        ({"max_batch": 1}, (1,)),
        ({"max_batch": 6}, (1, 2, 4, 6)),
        ({"max_batch": 200}, (1, 2, 4, 8, 16, 32, 64, 128, 200)),
        ({"max_batch": 256}, (1, 2, 4, 8, 16, 32, 64, 128, 256)),
        ({"buckets": [3, 1], "max_batch": 2}, (1, 3)),
    ],
)
def test_buckets_are_powers_of_two_up_to_the_largest_batch_or_as_asked(
    asked: dict[str, Any], buckets: tuple[int, ...]
) -> None:
    assert declare(module(), inputs=X, **asked).buckets == buckets


@pytest.mark.parametrize(
    ("own", "spec", "message"),
    [
        ({}, {}, "inputs are not declared"),
        ({"INPUTS": {"x": tf.TensorSpec([None], tf.float32)}}, {}, "inputs.x.*largest size as 'max'"),
        ({"INPUTS": {"x": tf.TensorSpec(None, tf.float32)}}, {}, "input 'x': expected a tf.TensorSpec"),
        ({"INPUTS": {"x": 5}}, {}, "input 'x': expected a tf.TensorSpec.*got 5"),
        ({"INPUTS": [tf.TensorSpec([], tf.int32)]}, {}, "own inputs: expected a dict"),
        ({"SPEC": "fast"}, {"inputs": X}, "own options: expected a dict"),
        ({"SPEC": {"bucket": [1]}}, {"inputs": X}, "bucket"),
        ({"INPUTS": {"x": {"dtype": "float23", "shape": []}}}, {}, "'float23' is no dtype"),
        ({"examples": lambda: 1 / 0}, {"inputs": X}, r"examples\(\) failed: ZeroDivisionError"),
        ({"examples": lambda name: []}, {"inputs": X}, r"examples\(\) failed: TypeError"),
    ],
)
def test_wrong_declaration_is_refused_with_a_sentence(own: dict[str, Any], spec: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceRefused, match=message):
        declare(module(**own), **spec)


def test_a_specification_takes_every_dtype_that_tensorflow_has() -> None:
    ours = {name for name in dir(tf.dtypes) if isinstance(getattr(tf.dtypes, name), tf.DType)}
    for name in sorted(ours | {"half", "double", "float"}):
        inputs = {"x": {"dtype": name, "shape": []}}
        assert declare(module(), inputs=inputs).inputs["x"].dtype == tf.as_dtype(name)


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[None]:
    for name, text in {
        "exits": "import sys; sys.exit(3)",
        "raises": "raise RuntimeError('no weights here')",
        "fine": "LIMIT = 5\ndef predict(x): return x",
    }.items():
        (tmp_path / f"per_example_{name}.py").write_text(text)
    sys.path.insert(0, str(tmp_path))
    yield
    sys.path.remove(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("per_example_")]:
        del sys.modules[name]


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("per_example_fine", "expected MODULE:FUNCTION"),
        (":predict", "expected MODULE:FUNCTION"),
        ("per_example_fine:", "expected MODULE:FUNCTION"),
        ("per_example_fine:predict()", "expected MODULE:FUNCTION"),
        ("os:system", "package 'os' may not be imported here.*per_example_exits"),
        (".relative:predict", "package '' may not be imported"),
        ("per_example_fine:LIMIT", "has no function 'LIMIT'"),
        ("per_example_fine:missing", "has no function 'missing'"),
        ("per_example_fine.missing:predict", "ModuleNotFoundError"),
        ("per_example_raises:predict", "RuntimeError: no weights here"),
        ("per_example_exits:predict", "SystemExit: 3"),
    ],
)
def test_import_path_that_leads_nowhere_is_refused(target: str, message: str) -> None:
    allowed = ["per_example_exits", "per_example_fine", "per_example_raises"]
    with pytest.raises(SourceRefused, match=message):
        import_function(target, allowed)


@pytest.mark.usefixtures("packages")
def test_listed_package_is_imported() -> None:
    function, own = import_function("per_example_fine:predict", ["per_example_fine"])
    assert function(3) == 3
    assert own.LIMIT == 5


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tf.Module()
    function = tf.function(lambda x: {"y": x}).get_concrete_function(x=tf.TensorSpec([None, 2], tf.float32, name="x"))
    path = tmp_path_factory.mktemp("saved")
    tf.saved_model.save(root, str(path), signatures={"serving_default": function})
    return path


def test_saved_models_signature_declares_its_own_types(saved: Path) -> None:
    spec = ModelSpec.model_validate({"inputs": {"x": {"dtype": "float32", "shape": [None, 2], "max": 9}}})
    declared = declaration_of_saved_model(saved, spec)
    assert declared.inputs["x"].shape.as_list() == [None, 2]
    assert declared.lengths["x"].max == 9
    fixed = ModelSpec.model_validate({"inputs": {"x": {"dtype": "float32", "shape": [5, 2]}}})
    assert declaration_of_saved_model(saved, fixed).inputs["x"].shape.as_list() == [5, 2]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"batch_dimension": False}, "largest size as 'max'"),
        ({"signature": "other"}, "no signature 'other'; it has serving_default"),
        ({"inputs": {"z": {"dtype": "float32", "shape": [2]}}}, "declares the inputs.*'z'.*takes.*'x'"),
        ({"inputs": {"x": {"dtype": "int32", "shape": [5, 2]}}}, "input 'x': the spec says int32"),
        ({"inputs": {"x": {"dtype": "float32", "shape": [5, 3]}}}, "input 'x': the spec says float32.5, 3."),
    ],
)
def test_specification_that_contradicts_the_signature_is_refused(
    saved: Path, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(SourceRefused, match=message):
        declaration_of_signature(tf.saved_model.load(str(saved)), ModelSpec.model_validate(spec))


def test_directory_that_is_no_saved_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\xff" * 100)
    with pytest.raises(SourceRefused, match="can't be loaded"):
        declaration_of_saved_model(tmp_path, ModelSpec())

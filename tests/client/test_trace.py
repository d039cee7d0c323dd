from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rowwise._registration import Submission, prepare
from rowwise._trace import save_example_function
from rowwise.errors import CannotLoad, CannotTrace, WrongInputs
from rowwise.progress import SilentView
from rowwise.targets import load_target, resolve
from rowwise.version_status import Stage

FUNCTIONS = Path(__file__).parent / "per_example_functions.py"


def submit(target: Any, scratch: Path, *, inputs: Any = None, **spec: Any) -> Submission:
    return prepare(resolve(target), inputs=inputs, spec=spec, scratch=scratch, view=SilentView())


def loaded_signature(submission: Submission, directory: Path) -> Any:
    """Unpack the archive and load its signature; the module is kept alive by it."""
    with tarfile.open(submission.archive) as tar:
        tar.extractall(directory, filter="data")
    module = tf.saved_model.load(str(directory))
    signature = module.signatures["serving_default"]
    signature.keep_alive = module
    return signature


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    path.mkdir()
    return path


def test_a_plain_function_with_if_and_while_keeps_its_branches_and_its_global_variable(scratch, tmp_path):
    target = load_target(f"{FUNCTIONS}:halve_until_small")

    submission = prepare(target, inputs=None, spec={}, scratch=scratch, view=SilentView())

    signature = loaded_signature(submission, tmp_path / "loaded")
    for x, (value, steps) in {(1.0, 1.0): (0.625, 4), (-1.0, -1.0): (0.625, 4), (0.01, 0.0): (0.04, 0)}.items():
        answer = signature(x=tf.constant(x))
        assert answer["output_0"].numpy() == pytest.approx(value)
        assert answer["output_1"].numpy() == steps
    expected = {
        "max_batch": 4,
        "inputs": {"x": {"dtype": "float32", "shape": [2]}},
        "outputs": ["output_0", "output_1"],
    }
    assert submission.spec == expected


def test_a_closure_over_a_variable_and_a_python_number_is_saved(scratch, tmp_path):
    scale = tf.Variable(3.0)
    offset = 0.5

    def affine(x):
        return scale * x + offset

    submission = submit(affine, scratch, inputs={"x": tf.TensorSpec([], tf.float32)})

    scale.assign(0.0)
    answer = loaded_signature(submission, tmp_path / "loaded")(x=tf.constant(2.0))
    assert list(answer) == ["output"]
    assert answer["output"].numpy() == 6.5


def test_a_lookup_table_in_a_global_of_a_called_function_is_saved(scratch, tmp_path):
    target = load_target(f"{FUNCTIONS}:word_number")

    submission = prepare(
        target, inputs={"word": {"dtype": "string", "shape": []}}, spec={}, scratch=scratch, view=SilentView()
    )

    signature = loaded_signature(submission, tmp_path / "loaded")
    assert [signature(word=tf.constant(word))["output"].numpy() for word in ("one", "two", "ten")] == [1, 2, -1]


def test_a_variable_dimension_stays_variable_and_the_module_says_its_details(scratch, tmp_path):
    submission = prepare(load_target(str(FUNCTIONS)), inputs=None, spec={}, scratch=scratch, view=SilentView())

    signature = loaded_signature(submission, tmp_path / "loaded")
    assert signature.structured_input_signature[1]["sequence"].shape.as_list() == [None]
    answer = signature(sequence=tf.constant([1.0, 2.0, 4.0, 9.0]), length=tf.constant(3))
    assert {name: value.numpy() for name, value in answer.items()} == {"total": 7.0}
    assert submission.spec["inputs"] == {
        "sequence": {"dtype": "float32", "shape": [None], "max": 16, "length_input": "length"},
        "length": {"dtype": "int32", "shape": []},
    }
    assert submission.spec["max_batch"] == 8


def test_a_length_input_that_only_the_details_name_is_an_integer_scalar(scratch, tmp_path):
    def total(x, n):
        return tf.reduce_sum(x[:n])

    form = {"dtype": "float32", "shape": [None], "max": 4, "length_input": "n"}
    signature = loaded_signature(submit(total, scratch, inputs={"x": form}), tmp_path / "loaded")

    assert signature(x=tf.constant([1.0, 2.0, 5.0]), n=tf.constant(2))["output"].numpy() == 3.0


def test_a_tf_function_with_dict_outputs_keeps_their_names(scratch, tmp_path):
    @tf.function
    def both(x, y):
        return {"sum": x + y, "product": x * y}

    inputs = {"x": np.zeros(3, np.float32), "y": tf.TensorSpec([3], tf.float32)}
    signature = loaded_signature(submit(both, scratch, inputs=inputs), tmp_path / "loaded")

    answer = signature(x=tf.constant([1.0, 2.0, 3.0]), y=tf.constant([4.0, 5.0, 6.0]))
    np.testing.assert_array_equal(answer["sum"], [5, 7, 9])
    np.testing.assert_array_equal(answer["product"], [4, 10, 18])


def test_a_tf_module_is_called_and_its_variables_saved(scratch, tmp_path):
    class Doubler(tf.Module):
        def __init__(self):
            super().__init__()
            self.factor = tf.Variable(2.0)

        def __call__(self, x):
            if x > 0.0:
                return self.factor * x
            return x

    inputs = {"x": {"dtype": "float32", "shape": []}}
    signature = loaded_signature(submit(Doubler(), scratch, inputs=inputs), tmp_path / "loaded")

    assert signature(x=tf.constant(4.0))["output"].numpy() == 8.0
    assert signature(x=tf.constant(-4.0))["output"].numpy() == -4.0


def test_a_keras_model_loses_its_batch_dimension_and_names_its_own_inputs(scratch, tmp_path):
    model = tf.keras.Sequential([tf.keras.Input((3,), name="pixels"), tf.keras.layers.Dense(2, activation="relu")])
    x = np.array([1.0, -2.0, 0.5], np.float32)

    submission = submit(model, scratch)

    answer = loaded_signature(submission, tmp_path / "loaded")(pixels=tf.constant(x))
    assert submission.spec["inputs"] == {"pixels": {"dtype": "float32", "shape": [3]}}
    np.testing.assert_allclose(answer["output"], model(x[None])[0], rtol=1e-6)
    assert answer["output"].shape == (2,)


def test_the_order_of_several_outputs_goes_up_unless_another_is_asked_for(scratch):
    inputs = {"x": tf.TensorSpec([2])}

    assert submit(lambda x: {"z": x, "a": x}, scratch, inputs=inputs).spec["outputs"] == ["z", "a"]
    asked = submit(lambda x: {"z": x, "a": x}, scratch, inputs=inputs, outputs=["a", "z"])
    assert asked.spec["outputs"] == ["a", "z"]
    assert "outputs" not in submit(lambda x: x, scratch, inputs=inputs).spec


def test_a_saved_model_directory_goes_up_as_it_is(scratch, tmp_path):
    original = tmp_path / "original"
    save_example_function(lambda x: x + 1.0, {"x": tf.TensorSpec([2])}, original)

    submission = submit(original, scratch, signature="serving_default")

    assert submission.spec == {"signature": "serving_default"}
    answer = loaded_signature(submission, tmp_path / "loaded")(x=tf.constant([1.0, 2.0]))
    np.testing.assert_array_equal(answer["output"], [2, 3])


def test_the_saved_graph_names_the_users_source_lines(scratch, tmp_path):
    submission = prepare(load_target(str(FUNCTIONS)), inputs=None, spec={}, scratch=scratch, view=SilentView())

    with tarfile.open(submission.archive) as tar:
        debug_info = tar.extractfile("debug/saved_model_debug_info.pb").read()
    assert FUNCTIONS.name.encode() in debug_info


def test_the_stages_are_shown_in_order(scratch):
    class Recorder(SilentView):
        def __init__(self) -> None:
            self.stages: list[Stage] = []

        def show(self, stage: Stage) -> None:
            self.stages.append(stage)

    recorder = Recorder()
    prepare(resolve(lambda x: x), inputs={"x": np.zeros(1)}, spec={}, scratch=scratch, view=recorder)

    assert [stage.name for stage in recorder.stages] == ["trace", "pack"]


def test_an_exception_of_the_function_is_told_in_its_own_words(scratch):
    def broken(x):
        raise KeyError("no such embedding")

    with pytest.raises(CannotTrace, match="no such embedding"):
        submit(broken, scratch, inputs={"x": tf.TensorSpec([2])})


def test_a_resource_that_nothing_keeps_is_refused_with_what_to_do(scratch):
    class Opaque:
        __slots__ = ("table",)

        def __init__(self) -> None:
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer([1], [2]), default_value=tf.constant(0)
            )

        def __call__(self, x):
            return self.table.lookup(x)

    with pytest.raises(CannotTrace, match="module global or an attribute"):
        submit(Opaque(), scratch, inputs={"x": tf.TensorSpec([], tf.int32)})


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (None, "what one example looks like"),
        ({}, "inputs by name"),
        ({"y": tf.TensorSpec([2])}, "the function takes x; inputs declares y"),
        ({"x": tf.TensorSpec([2]), "y": tf.TensorSpec([2])}, "names must be the same"),
        ({"x": 7}, "input 'x': expected a tf.TensorSpec"),
        ({"x": {"dtype": "float33", "shape": [2]}}, "no dtype 'float33'"),
        ({"x": {"dtype": "float32"}}, "'dtype' and 'shape'"),
        ({"x": {"dtype": "float32", "shape": [-1]}}, "negative size"),
        ({"x": {"dtype": "float32", "shape": "ab"}}, "no list of sizes"),
    ],
)
def test_wrong_inputs_are_named(scratch, inputs, sentence):
    def identity(x):
        return x

    with pytest.raises(WrongInputs, match=sentence):
        submit(identity, scratch, inputs=inputs)


def test_a_directory_that_is_no_saved_model_is_refused(tmp_path, scratch):
    with pytest.raises(CannotLoad, match="neither a SavedModel directory"):
        submit(str(tmp_path), scratch)
    with pytest.raises(CannotLoad, match="no such file or directory"):
        submit(tmp_path / "missing", scratch)


def test_a_keras_model_that_mixes_the_rows_of_a_batch_is_not_uploaded(tmp_path):
    """Alone, a row is its own mean: the server would have answered with zeros."""
    x = tf.keras.Input((3,))
    centred = tf.keras.layers.Lambda(lambda rows: rows - tf.reduce_mean(rows, 0, keepdims=True), output_shape=(3,))(x)

    with pytest.raises(CannotTrace, match="mixes the rows of a batch"):
        save_example_function(tf.keras.Model(x, centred), {"x": tf.TensorSpec([3])}, tmp_path)

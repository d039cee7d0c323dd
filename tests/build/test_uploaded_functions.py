"""What the builder says of a function that a client uploaded: in the names and lines of the file it was written in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from rowwise._archive import pack
from rowwise._trace import save_example_function
from rowwise.targets import load_target
from server.artifact import Manifest
from server.build.archive import extract_saved_model
from server.build.compile import build_artifact
from server.build.declaration import declaration_of_saved_model
from server.build.errors import SourceRefused
from server.spec import ModelSpec
from vectorizer import DeclarationError, LoopedOpError

SOURCE = """\
import tensorflow as tf

WEIGHTS = tf.Variable(tf.ones([4, 4]))


class Ranker:
    def predict(self, x):
        return {"score": tf.nn.softmax(x @ WEIGHTS)}  # line 8

    def resized(self, x):
        return tf.raw_ops.SerializeTensor(tensor=x)  # line 11


ranker = Ranker()
"""


def upload(function: str, directory: Path) -> Path:
    """Do what the client does with a function, and the builder with the archive; return the SavedModel."""
    home = directory / "home-of-the-user"
    home.mkdir()
    (home / "ranker.py").write_text(SOURCE)
    target = load_target(f"{home}/ranker.py:ranker.{function}")
    save_example_function(target.value, {"x": tf.TensorSpec([3, 4])}, directory / "traced")
    return extract_saved_model(pack(directory / "traced", directory / "model.tar.gz"), directory / "unpacked")


def build(saved_model: Path, output: Path, **spec: object) -> Path:
    declaration = declaration_of_saved_model(saved_model, ModelSpec(buckets=(1, 2), **spec))
    output.mkdir()
    build_artifact(declaration, output, name="ranker", version=1, report=lambda stage, done, total: None)
    return output


def test_the_certificate_names_the_users_function_and_lines(tmp_path):
    artifact = build(upload("predict", tmp_path), tmp_path / "artifact")

    certificate = json.loads((artifact / "certificate.json").read_text())
    assert certificate["function"] == "Ranker.predict"
    where = {op["op"]: op["where"] for op in certificate["ops"]}
    assert where["MatMul"] == ["ranker.py:8"]
    assert where["Softmax"] == ["ranker.py:8"]


def test_outputs_have_the_functions_order_and_not_the_signatures(tmp_path):
    def predict(x):
        return {"z": x, "a": tf.reduce_sum(x), "m": x * 2.0}

    outputs = save_example_function(predict, {"x": tf.TensorSpec([3])}, tmp_path / "traced")
    assert outputs == ("z", "a", "m")

    artifact = build(tmp_path / "traced", tmp_path / "artifact", outputs=outputs, derivatives=["gradient"])

    assert [each.name for each in Manifest.read(artifact).signature.outputs] == ["z", "a", "m"]
    by_name = declaration_of_saved_model(tmp_path / "traced", ModelSpec(buckets=(1,))).vectorized()
    assert [each.name for each in by_name.outputs] == ["a", "m", "z"]
    x = np.float32([[1, 2, 3]])
    ordered = declaration_of_saved_model(tmp_path / "traced", ModelSpec(buckets=(1,), outputs=outputs)).vectorized()
    answers = ordered.graphs[next(iter(ordered.graphs))](x=tf.constant(x))
    np.testing.assert_array_equal(answers["a"], [6.0])
    np.testing.assert_array_equal(answers["m"], 2 * x)


def test_outputs_past_the_tenth_of_a_tuple_are_counted_and_not_spelled(tmp_path):
    outputs = save_example_function(lambda x: [x + i for i in range(12)], {"x": tf.TensorSpec([])}, tmp_path / "traced")

    spec = ModelSpec(buckets=(1,), outputs=outputs)
    vectorized = declaration_of_saved_model(tmp_path / "traced", spec).vectorized()

    assert [each.name for each in vectorized.outputs] == [f"output_{i}" for i in range(12)]


@pytest.mark.parametrize("outputs", [("a",), ("a", "b", "c"), ("a", "a"), ("a", "B")])
def test_outputs_that_are_declared_are_those_of_the_function(tmp_path, outputs):
    save_example_function(lambda x: {"b": x, "a": x}, {"x": tf.TensorSpec([])}, tmp_path / "traced")

    with pytest.raises(DeclarationError, match=r"gives the outputs \['a', 'b'\], and declared are"):
        declaration_of_saved_model(tmp_path / "traced", ModelSpec(buckets=(1,), outputs=outputs)).vectorized()


def test_an_op_that_would_be_looped_is_refused_at_the_users_line(tmp_path):
    with pytest.raises(LoopedOpError) as refused:
        build(upload("resized", tmp_path), tmp_path / "artifact")

    assert str(refused.value).startswith(
        "Ranker.resized: op SerializeTensor (ranker.py:11) would run once for each row"
    )
    assert refused.value.ops == {"SerializeTensor": ("ranker.py:11",)}


def test_no_path_of_the_users_machine_is_uploaded(tmp_path):
    saved_model = upload("predict", tmp_path)

    for path in saved_model.rglob("*"):
        if path.is_file():
            assert b"home-of-the-user" not in path.read_bytes(), path
            assert b"site-packages" not in path.read_bytes(), path


def test_damaged_debug_information_is_refused_like_any_other_damage(tmp_path):
    saved_model = upload("predict", tmp_path)
    (saved_model / "debug" / "saved_model_debug_info.pb").write_bytes(b"\xff\xff\xff")

    with pytest.raises(SourceRefused, match="the SavedModel can't be loaded"):
        declaration_of_saved_model(saved_model, ModelSpec())


def test_a_directory_that_is_no_loadable_model_is_refused(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"no model at all")

    with pytest.raises(SourceRefused, match="the SavedModel can't be loaded"):
        declaration_of_saved_model(tmp_path, ModelSpec())

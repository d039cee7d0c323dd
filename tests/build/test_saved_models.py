"""SavedModels that were not written for Rowwise: in batches, by older Keras, by TensorFlow 1."""

from __future__ import annotations

import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from rowwise._archive import pack
from server.artifact import Manifest
from server.batching import Batch, CostTable, Group, Item
from server.build.archive import extract_saved_model
from server.build.compile import build_artifact
from server.build.declaration import declaration_of_function, declaration_of_saved_model
from server.build.errors import SourceRefused
from server.engine import LoadedModel
from server.protocol import Rows
from server.spec import ModelSpec
from tests.vectorizer.old_saved_models import give_optimizer_slots, save_module, save_session

ONE = {"x": {"dtype": "float32", "shape": [4]}, "word": {"dtype": "string", "shape": []}}


def served(artifact: Path, columns: dict[str, np.ndarray], bucket: int) -> dict[str, np.ndarray]:
    """Return what the engine answers in one bucket."""
    signature = Manifest.read(artifact).signature
    rows = Rows(bucket, tuple(columns[tensor.name] for tensor in signature.inputs))
    loaded = LoadedModel.load(artifact)
    try:
        runner = loaded.groups["predict", ()]
        group = Group("test", CostTable(runner.costs_s), label="model 'old'")
        item = Item(group, rows.n, rows, arrived_s=0.0, deadline_s=None, on_done=lambda item: None)
        batch = Batch(
            1, group, bucket, [(item, 0, rows.n)], n_rows=rows.n, reason="test", dispatched_s=0.0, predicted_s=1.0
        )
        return dict(zip((tensor.name for tensor in signature.outputs), runner.run(batch), strict=True))
    finally:
        loaded.close()


def test_archive_of_a_model_for_batches_is_built_and_served_by_the_example(tmp_path: Path) -> None:
    """With its table. With optimizer slots, which TensorFlow refuses, the real server builds it: tests/e2e."""
    module = save_module(tmp_path / "model")
    unpacked = extract_saved_model(pack(tmp_path / "model", tmp_path / "model.tar.gz"), tmp_path / "unpacked")
    declaration = declaration_of_saved_model(unpacked, ModelSpec.model_validate({"inputs": ONE, "buckets": [1, 3]}))
    artifact = tmp_path / "artifact"
    artifact.mkdir()
    build_artifact(declaration, artifact, name="old", version=1, report=lambda stage, done, total: None)
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    word = np.array([b"row", b"?", b"wise"], object)
    want = module.serve(tf.constant(x), tf.constant(word))
    for bucket in (1, 3):
        got = served(artifact, {"x": x[:bucket], "word": word[:bucket]}, bucket)
        for name, values in got.items():
            np.testing.assert_allclose(values, want[name][:bucket], rtol=1e-5, atol=1e-5)


TABLE = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(["row", "wise"], tf.constant([1, 2], tf.int64)), default_value=-1
)


def looked_up(word: tf.Tensor) -> tf.Tensor:
    return TABLE.lookup(word)


def test_lookup_table_of_an_imported_function_is_saved_with_it(tmp_path: Path) -> None:
    """Saving failed, as nothing owned the table that the graph reads."""
    spec = ModelSpec.model_validate({"inputs": {"word": {"dtype": "string", "shape": []}}, "buckets": [1, 2]})
    module = types.SimpleNamespace()
    build_artifact(
        declaration_of_function(looked_up, module, spec),
        tmp_path,
        name="words",
        version=1,
        report=lambda stage, done, total: None,
    )
    got = served(tmp_path, {"word": np.array([b"wise", b"?"], object)}, 2)
    assert got["output"].tolist() == [2, -1]


def test_batch_dimension_is_removed_unless_the_registration_says_that_it_is_none(tmp_path: Path) -> None:
    save_session(tmp_path / "model", lambda x: {"y": x * 2.0}, inputs={"x": tf.TensorSpec([None, 3])})
    for asked in (None, True):
        declaration = declaration_of_saved_model(tmp_path / "model", ModelSpec(batch_dimension=asked))
        assert {name: each.shape.as_list() for name, each in declaration.inputs.items()} == {"x": [3]}
    with pytest.raises(SourceRefused, match="variable"):
        declaration_of_saved_model(tmp_path / "model", ModelSpec(batch_dimension=False))


def test_saved_model_that_no_way_of_loading_takes_is_refused_with_both_reasons(tmp_path: Path) -> None:
    save_module(tmp_path / "model")
    give_optimizer_slots(tmp_path / "model")
    for file in (tmp_path / "model" / "variables").iterdir():
        file.unlink()
    with pytest.raises(SourceRefused, match=r"neither its objects .*nor its graph"):
        declaration_of_saved_model(tmp_path / "model", ModelSpec.model_validate({"inputs": ONE}))

"""Published models, and models from other libraries: registered as docs/other_models.md says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from server_process import ServerProcess

from rowwise import BuildFailed, Client
from tests.page_blocks import run_recipe

# Keras writes its files with what NumPy 2 warns of.
pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")]
RNG = np.random.default_rng(11)


def drawn(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def check(url: str, name: str, rows: np.ndarray, want: Any, *, input_name: str, tolerance: float = 1e-5) -> None:
    """One by one, as callers ask, from as many threads as make batches of them."""
    with Client(url) as client:
        got = client.predict_many(name, [{input_name: row} for row in rows])
        alone = client.predict(name, **{input_name: rows[0]})
    np.testing.assert_allclose(np.stack(got), want, rtol=0, atol=tolerance)
    np.testing.assert_allclose(alone, want[0], rtol=0, atol=tolerance)


def small_network() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input([8, 8, 1], name="image"),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )


def test_a_keras_file_is_registered_by_its_path(server: ServerProcess, tmp_path: Path) -> None:
    model, rows = small_network(), drawn(5, 8, 8, 1)
    model.save(tmp_path / "model.keras")
    command = [sys.executable, "-m", "rowwise", "register", "from-keras", str(tmp_path / "model.keras")]
    subprocess.run([*command, "--spec", '{"buckets": [1, 4]}', "--url", server.url], check=True, timeout=300)
    check(server.url, "from-keras", rows, model(rows).numpy(), input_name="image")


@pytest.mark.long
def test_a_keras_model_that_was_loaded_is_registered(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rows = small_network(), drawn(5, 8, 8, 1)
    monkeypatch.chdir(tmp_path)
    model.save("model.keras")
    run_recipe("keras", url=server.url)
    check(server.url, "mine", rows, model(rows).numpy(), input_name="image")


@pytest.mark.long
def test_what_keras_exported_is_registered(server: ServerProcess, tmp_path: Path) -> None:
    model, rows = small_network(), drawn(5, 8, 8, 1)
    model.export(str(tmp_path / "exported"), verbose=False)
    with Client(server.url) as client:
        client.register("from-export", tmp_path / "exported", buckets=(1, 4))
        signatures = client.metadata("from-export")["metadata"]["signature_def"]["signature_def"]
    (given,) = signatures["serving_default"]["inputs"]
    check(server.url, "from-export", rows, model(rows).numpy(), input_name=given)


def words_of_a_hub(directory: Path) -> Any:
    """As text embeddings on TensorFlow Hub are: a vocabulary file, a table, a mean over the words of each text."""

    class Words(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            vocabulary = directory / "tokens.txt"
            vocabulary.write_text("write\nthe\nmodel\nfor\none\nexample\n")
            self.vocabulary = tf.saved_model.Asset(str(vocabulary))
            self.table = tf.lookup.StaticVocabularyTable(
                tf.lookup.TextFileInitializer(
                    self.vocabulary.asset_path,
                    tf.string,
                    tf.lookup.TextFileIndex.WHOLE_LINE,
                    tf.int64,
                    tf.lookup.TextFileIndex.LINE_NUMBER,
                ),
                num_oov_buckets=1,
            )
            self.embeddings = tf.Variable(drawn(7, 4))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
        def __call__(self, sentences: tf.Tensor) -> tf.Tensor:
            words = self.table.lookup(tf.strings.split(sentences).to_tensor(b""))
            count = tf.strings.split(sentences).row_lengths()
            is_word = tf.sequence_mask(count, tf.shape(words)[1], tf.float32)
            summed = tf.reduce_sum(tf.gather(self.embeddings, words) * is_word[:, :, None], axis=1)
            return summed / tf.sqrt(tf.maximum(tf.cast(count, tf.float32), 1.0))[:, None]

    model = Words()
    tf.saved_model.save(model, str(directory / "nnlm"), signatures=model.__call__.get_concrete_function())
    (directory / "tokens.txt").unlink()
    return model


def test_a_model_of_a_hub_brings_its_vocabulary(server: ServerProcess, tmp_path: Path) -> None:
    model = words_of_a_hub(tmp_path)
    texts = np.array(["write the model", "one", "", "for whom", "example example one"], object)
    want = model(tf.constant(texts)).numpy()
    with Client(server.url) as client:
        client.register("words", tmp_path / "nnlm", buckets=(1, 4))
    check(server.url, "words", texts, want, input_name="sentences")


@pytest.mark.long
def test_basic_pitch_answers_as_its_other_form_does(server: ServerProcess) -> None:
    """The package's ONNX file is the same network in another library: it does not share a mistake with TensorFlow."""
    pytest.importorskip("basic_pitch", reason="make recipes installs basic-pitch", exc_type=ImportError)
    runtime = pytest.importorskip("onnxruntime", reason="make recipes installs onnxruntime")
    times = np.arange(43_844) / 22_050
    chord = sum(np.sin(2 * np.pi * hertz * times) * np.exp(-2 * times) for hertz in (261.63, 329.63, 392.0))
    sound = (chord / 3).astype(np.float32)[:, None]
    names = run_recipe("basic-pitch", url=server.url, sound=sound)
    session = runtime.InferenceSession(str(names["package"] / "saved_models" / "icassp_2022" / "nmp.onnx"))
    (argument,) = session.get_inputs()
    want = dict(
        zip([each.name for each in session.get_outputs()], session.run(None, {argument.name: sound[None]}), strict=True)
    )
    shapes = {value.shape[1:]: value[0] for value in want.values()}
    assert shapes[172, 264].max() > 0.3, "it hears no chord at all"
    np.testing.assert_allclose(names["notes"]["contour"], shapes[172, 264], atol=2e-3)
    of_keys = [value[0] for value in want.values() if value.shape[1:] == (172, 88)]
    for output in ("note", "onset"):
        assert min(np.abs(names["notes"][output] - each).max() for each in of_keys) < 2e-3


@pytest.mark.long
def test_mtcnn_answers_as_its_own_network(server: ServerProcess) -> None:
    pytest.importorskip("mtcnn", reason="make recipes installs mtcnn")
    crops = drawn(6, 24, 24, 3)
    names = run_recipe("mtcnn", url=server.url, crop=crops[0])
    boxes, are_faces = (value.numpy() for value in names["network"](crops))
    np.testing.assert_allclose(names["found"]["output_0"], boxes[0], atol=1e-5)
    np.testing.assert_allclose(names["found"]["output_1"], are_faces[0], atol=1e-5)
    with Client(server.url) as client:
        got = client.predict_many("faces", [{"inputs": crop} for crop in crops])
    np.testing.assert_allclose(np.stack([each["output_0"] for each in got]), boxes, atol=1e-5)


@pytest.mark.long
def test_jax_answers_as_in_jax(server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax", reason="make recipes installs jax")
    weights = drawn(8, 3)

    def predict(x: Any) -> Any:
        return jax.nn.softmax(jax.numpy.tanh(x) @ weights)

    monkeypatch.chdir(tmp_path)
    run_recipe("jax", url=server.url, predict=predict)
    rows = drawn(6, 8)
    check(server.url, "from-jax", rows, np.asarray(jax.vmap(predict)(rows)), input_name="x")
    with Client(server.url) as client:
        certificate = client.certificate("from-jax")
    assert {op["kind"] for op in certificate["ops"]} == {"own_batch"}


@pytest.mark.long
def test_a_pipeline_of_scikit_learn_answers_as_in_scikit_learn(server: ServerProcess) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    flowers, kinds = datasets.load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), PCA(3), LogisticRegression()).fit(flowers, kinds)
    run_recipe("scikit-learn", url=server.url, pipeline=pipeline)
    check(server.url, "pipeline", flowers.astype(np.float32), pipeline.predict_proba(flowers), input_name="x")


@pytest.mark.long
def test_a_model_whose_rows_depend_on_each_other_is_refused(server: ServerProcess, tmp_path: Path) -> None:
    class Whitened(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return x - tf.reduce_mean(x, axis=0)

    model = Whitened()
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=model.__call__.get_concrete_function())
    with Client(server.url) as client, pytest.raises(BuildFailed, match="mixes the rows of a batch"):
        client.register("whitened", tmp_path / "model")

"""SavedModels whose objects can't be restored are loaded by their graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.old_saved_models import WORDS, give_optimizer_slots, save_module, save_session
from tests.vectorizer.oracle import spec
from vectorizer import BatchFunction, DeclarationError, TraceError, has_objects, load_signature, vectorize

RNG = np.random.default_rng(1)


def test_saved_model_with_optimizer_slots_is_vectorized_by_its_graph(tmp_path: Path) -> None:
    """TensorFlow 2.21 says: '_UserObject' object has no attribute 'add_slot'."""
    module = save_module(tmp_path / "model")
    give_optimizer_slots(tmp_path / "model")
    with pytest.raises(AttributeError, match="add_slot"):
        tf.saved_model.load(str(tmp_path / "model"))

    signature = load_signature(tmp_path / "model", "serving_default")
    assert {name: each.shape.as_list() for name, each in signature.inputs.items()} == {"word": [None], "x": [None, 4]}
    vectorized = vectorize(
        BatchFunction(signature, name="scorer"), inputs={"x": spec(4), "word": spec(dtype=tf.string)}, buckets=(3,)
    )
    assert vectorized.certificate.looped == ()
    assert vectorized.certificate.loops_batched == vectorized.certificate.loops_unbatched
    x = RNG.normal(size=(7, 4)).astype(np.float32)
    word = np.array([*WORDS, b"?", b"a", b"", b"wise"], object)
    want = module.serve(tf.constant(x), tf.constant(word))
    for n in (1, 2, 7, 3):
        got = vectorized(x=x[:n], word=word[:n])
        for name in ("score", "twice"):
            np.testing.assert_allclose(got[name], want[name][:n], rtol=1e-5, atol=1e-5)
        assert got["word"].tolist() == want["word"].numpy()[:n].tolist()


def test_variables_and_tables_of_a_graph_can_be_saved_again(tmp_path: Path) -> None:
    module = save_module(tmp_path / "model")
    give_optimizer_slots(tmp_path / "model")
    signature = load_signature(tmp_path / "model", "serving_default")
    specs = {"x": spec(2, 4), "word": spec(2, dtype=tf.string)}
    again = tf.Module()
    again.owner = signature.owner
    traced = tf.function(signature).get_concrete_function(
        **{k: tf.TensorSpec(v.shape, v.dtype, k) for k, v in specs.items()}
    )
    assert {variable.name for variable in traced.variables} == {"weights:0", "counts:0"}
    assert [variable.name for variable in traced.variables if variable.trainable] == ["weights:0"]
    tf.saved_model.save(again, str(tmp_path / "again"), signatures=traced)

    loaded = tf.saved_model.load(str(tmp_path / "again"))
    x, word = tf.constant(RNG.normal(size=(2, 4)), tf.float32), tf.constant(["row", "?"])
    got, want = loaded.signatures["serving_default"](x=x, word=word), module.serve(x, word)
    np.testing.assert_allclose(got["score"], want["score"], rtol=1e-6)
    assert got["word"].numpy().tolist() == [2, -1]


def test_saved_model_of_tensorflow_1_is_vectorized(tmp_path: Path) -> None:
    weights = RNG.normal(size=(3, 2)).astype(np.float32)

    def body(x: tf.Tensor) -> dict[str, tf.Tensor]:
        kept = tf.compat.v1.get_variable("kept", initializer=weights, use_resource=False)
        other = tf.compat.v1.get_variable("other", initializer=weights * 2.0, use_resource=True)
        return {"y": tf.tanh(x @ kept) + x @ other}

    save_session(tmp_path / "model", body, inputs={"x": spec(None, 3)})
    assert not has_objects(tmp_path / "model")
    signature = load_signature(tmp_path / "model", "serving_default")
    vectorized = vectorize(BatchFunction(signature, name="old"), inputs={"x": spec(3)}, buckets=(1, 4))
    x = RNG.normal(size=(7, 3)).astype(np.float32)
    np.testing.assert_allclose(vectorized(x=x)["y"], np.tanh(x @ weights) + x @ weights * 2.0, rtol=1e-5, atol=1e-6)


def test_control_flow_of_tensorflow_1_is_refused_with_what_to_do(tmp_path: Path) -> None:
    def body(x: tf.Tensor) -> dict[str, tf.Tensor]:
        tf.compat.v1.disable_control_flow_v2()
        try:
            return {"y": tf.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: [y * 2.0], [tf.abs(x) + 1.0])[0]}
        finally:
            tf.compat.v1.enable_control_flow_v2()

    save_session(tmp_path / "model", body, inputs={"x": spec(3)})
    signature = load_signature(tmp_path / "model", "serving_default")
    with pytest.raises(TraceError, match=r"TensorFlow 1's control flow.*enable_control_flow_v2"):
        vectorize(signature, inputs={"x": spec(3)}, buckets=(2,))


def test_signature_that_is_not_there_is_named(tmp_path: Path) -> None:
    save_module(tmp_path / "model")
    with pytest.raises(DeclarationError, match="no signature 'score'; it has serving_default"):
        load_signature(tmp_path / "model", "score")


@pytest.mark.slow
def test_basic_pitch_as_it_is_on_the_package_index() -> None:
    """A SavedModel of old Keras: 160 convolutions, mirrored padding, assertions about shapes, batches of any size."""
    basic_pitch = pytest.importorskip("basic_pitch", reason="the package basic-pitch is not installed")
    path = Path(basic_pitch.__file__).parent / "saved_models" / "icassp_2022" / "nmp"
    signature = load_signature(path, "serving_default")
    # Silence has no loudest sample to be normalized by: there the model magnifies its own rounding.
    vectorized = vectorize(
        BatchFunction(signature, name="pitch"), inputs={"input_2": spec(43844, 1)}, buckets=(1, 3), tolerance=0.9
    )
    assert vectorized.certificate.looped == ()
    assert vectorized.certificate.loops_batched == 0
    sound = RNG.normal(size=(3, 43844, 1)).astype(np.float32)
    want, got = signature(input_2=tf.constant(sound)), vectorized(input_2=sound)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-4, atol=1e-5)

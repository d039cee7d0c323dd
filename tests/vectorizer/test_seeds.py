"""Functions that draw random numbers: the same seed gives the same answer in any batch, slot and process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import DeclarationError, Length, LoopedOpError, OpClass, Vectorized, vectorize

X = np.arange(28, dtype=np.float32).reshape(7, 4) / 10
SEEDS = np.array([5, 6, 7, 5, -(2**63), 2**63 - 1, 0], np.int64)


def draws(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {
        "dropped": tf.nn.dropout(x, 0.5),
        "normal": x + tf.random.normal([4]),
        "again": x + tf.random.normal([4]),
        "die": tf.random.uniform([], 1, 7, tf.int32),
        "order": tf.random.shuffle(tf.range(6)),
        "start": tf.random.truncated_normal([5], dtype=tf.float64),
        "choice": tf.random.categorical(x[None], 3)[0],
    }


@pytest.fixture(scope="module")
def drawing() -> Vectorized:
    return vectorize(draws, inputs={"x": spec(4)}, buckets=(1, 8))


def assert_same(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    for name in a:
        np.testing.assert_array_max_ulp(a[name], b[name], maxulp=0) if a[name].dtype.kind == "f" else (
            np.testing.assert_array_equal(a[name], b[name])
        )


def test_same_seed_gives_the_same_answer_at_any_batch_size_and_slot(drawing: Vectorized) -> None:
    together = drawing(x=X, seed=SEEDS)
    alone = [drawing(x=X[row : row + 1], seed=SEEDS[row : row + 1]) for row in range(7)]
    backwards = drawing(x=X[::-1], seed=SEEDS[::-1])
    for row in range(7):
        assert_same({name: values[row] for name, values in together.items()}, {k: v[0] for k, v in alone[row].items()})
    assert_same(together, {name: values[::-1] for name, values in backwards.items()})


def test_each_seed_and_each_op_draws_other_numbers(drawing: Vectorized) -> None:
    answers = drawing(x=np.zeros((7, 4)), seed=SEEDS)
    np.testing.assert_array_equal(answers["normal"][0], answers["normal"][3])  # the same seed
    assert len(np.unique(answers["normal"][[0, 1, 2, 4, 5, 6]])) == 24
    assert not np.intersect1d(answers["normal"], answers["again"]).size
    assert all(sorted(order) == list(range(6)) for order in answers["order"])


def test_draws_are_distributed_as_they_should_be(drawing: Vectorized) -> None:
    n = 4000
    answers = drawing(x=np.zeros((n, 4)), seed=np.arange(n))
    assert abs(answers["normal"].mean()) < 0.04
    assert abs(answers["normal"].std() - 1.0) < 0.04
    assert abs(np.corrcoef(answers["normal"][:-1, 0], answers["normal"][1:, 0])[0, 1]) < 0.06
    assert np.abs(answers["start"]).max() < 2.0
    assert np.all(np.abs(np.bincount(answers["die"], minlength=7)[1:] - n / 6) < 130)
    assert np.all(np.abs(np.bincount(answers["order"][:, 0], minlength=6) - n / 6) < 130)


def test_caller_who_gives_no_seed_gets_a_fresh_one(drawing: Vectorized) -> None:
    first, second = drawing(x=X), drawing(x=X)
    assert not np.intersect1d(first["normal"], second["normal"]).size
    with pytest.raises(DeclarationError, match="seed"):
        drawing(x=X, seeds=SEEDS)


def test_certificate_says_which_ops_draw_from_the_seed(drawing: Vectorized) -> None:
    certificate = drawing.certificate
    drawn = {record.op: record.count for record in certificate.ops if record.kind is OpClass.SEEDED}
    assert drawn == {
        "Multinomial": 1,
        "RandomShuffle": 1,
        "RandomStandardNormal": 2,
        "RandomUniform": 1,
        "RandomUniformInt": 1,
        "TruncatedNormal": 1,
    }
    (record,) = (record for record in certificate.ops if record.op == "TruncatedNormal")
    assert record.where[0].startswith("test_seeds.py:")
    assert (certificate.loops_batched, certificate.looped, certificate.not_for_xla) == (0, (), ())


def walks(x: tf.Tensor) -> tf.Tensor:
    path = x
    while tf.reduce_sum(path) < 12.0:
        if tf.random.uniform([]) < 0.5:
            path += tf.random.uniform([4])
        else:
            path += 1.0
    return path


@tf.function
def noise(x: tf.Tensor) -> tf.Tensor:
    return x + tf.random.normal([4])


def calls(x: tf.Tensor) -> tf.Tensor:
    return tf.stack([noise(x), noise(x)])


def test_another_process_draws_the_same() -> None:
    code = (
        "import tensorflow as tf\nfrom tests.vectorizer.test_seeds import SEEDS, X, calls\n"
        "from vectorizer import vectorize\n"
        "v = vectorize(calls, inputs={'x': tf.TensorSpec([4])}, buckets=(4,))\n"
        "print(v(x=X, seed=SEEDS).tobytes().hex())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    here = vectorize(calls, inputs={"x": spec(4)}, buckets=(2,))
    assert done.stdout.split()[-1] == here(x=X, seed=SEEDS).tobytes().hex()


def counts(x: tf.Tensor) -> tf.Tensor:
    drawn = tf.TensorArray(tf.float32, 6)
    for i in tf.range(2):
        for j in tf.range(3):
            drawn = drawn.write(3 * i + j, tf.random.normal([]))
    return drawn.stack() + x[0]


def test_loop_draws_anew_in_every_step() -> None:
    vectorized = vectorize(counts, inputs={"x": spec(4)}, buckets=(4,))
    answers = vectorized(x=np.zeros((3, 4)), seed=[1, 2, 3])
    assert len(np.unique(answers)) == 18
    assert vectorized.certificate.loops_batched == vectorized.certificate.loops_unbatched == 2


def test_rows_that_loop_and_branch_differently_keep_their_own_stream() -> None:
    vectorized = vectorize(walks, inputs={"x": spec(4)}, buckets=(1, 4))
    together = vectorized(x=X, seed=SEEDS)
    for row in range(7):
        alone = vectorized(x=X[row : row + 1], seed=SEEDS[row : row + 1])
        np.testing.assert_array_equal(alone[0], together[row])


def test_each_call_of_a_function_draws_other_numbers() -> None:
    answers = vectorize(calls, inputs={"x": spec(4)}, buckets=(2,))(x=X[:2], seed=[1, 1])
    assert not np.intersect1d(answers[0, 0] - X[0], answers[0, 1] - X[0]).size


def test_dropout_of_a_keras_model_in_training_mode() -> None:
    """Its layers keep a state in a variable that they step on; here every read of it is drawn from the seed."""
    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(64), keras.layers.Dropout(0.5)])
    vectorized = vectorize(
        lambda x: tf.squeeze(model(x[None], training=True), 0), inputs={"x": spec(4)}, buckets=(1, 4)
    )
    answers = vectorized(x=np.ones((4, 4)), seed=[1, 2, 3, 1])
    dropped = answers == 0.0
    assert 0.3 < dropped.mean() < 0.7
    np.testing.assert_array_equal(answers[0], answers[3])
    assert not np.array_equal(dropped[0], dropped[1])


def test_seed_has_another_name_if_the_function_has_one_of_its_own() -> None:
    def predict(seed: tf.Tensor) -> tf.Tensor:
        return seed + tf.random.uniform([2])

    vectorized = vectorize(predict, inputs={"seed": spec(2)}, buckets=(2,))
    assert vectorized.function.seed_input == "random_seed"
    same = vectorized(seed=np.zeros((2, 2)), random_seed=[3, 3])
    np.testing.assert_array_equal(same[0], same[1])


def test_noise_of_a_variable_length_does_not_depend_on_the_padding() -> None:
    vectorized = vectorize(
        lambda x: x + tf.random.normal(tf.shape(x)),
        inputs={"x": spec(None)},
        lengths={"x": Length(max=8, buckets=(4, 8))},
        buckets=(2,),
    )
    short, long = vectorized(x=[np.zeros(3), np.zeros(7)], seed=[9, 9])
    np.testing.assert_array_equal(short, long[:3])


def test_distribution_by_rejection_is_looped_by_permission_only() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        return tf.random.gamma([2], x[0] + 1.0)

    with pytest.raises(LoopedOpError, match="StatelessRandomGammaV2"):
        vectorize(predict, inputs={"x": spec(4)}, buckets=(2,))
    vectorized = vectorize(predict, inputs={"x": spec(4)}, buckets=(1, 2), allow_looped=["StatelessRandomGammaV2"])
    pair = vectorized(x=X[:2], seed=[1, 2])
    np.testing.assert_array_equal(pair[1], vectorized(x=X[1:2], seed=[2])[0])
    assert vectorized.certificate.not_for_xla == ("StatelessRandomGammaV2",)


def test_unknown_choice_is_refused() -> None:
    with pytest.raises(DeclarationError, match="random: expected 'seeded' or 'refuse', got 'yes'"):
        vectorize(draws, inputs={"x": spec(4)}, buckets=(1,), random="yes")


def test_random_rotation_of_each_image_takes_no_loop_and_depends_on_its_seed_alone() -> None:
    """Keras' layer draws one angle for each image; mapped over a batch it looped over ops, many times slower."""
    layer = keras.layers.RandomRotation(0.2, fill_mode="constant")
    vectorized = vectorize(
        lambda image: layer(image[None], training=True)[0], inputs={"image": spec(8, 8, 3)}, buckets=(1, 4)
    )
    certificate = vectorized.certificate
    assert (certificate.loops_batched, certificate.looped) == (0, ())
    images = np.random.default_rng(0).random((3, 8, 8, 3), np.float32)
    together = vectorized(image=images, seed=[1, 2, 1])
    for row, seed in enumerate([1, 2, 1]):
        np.testing.assert_array_equal(vectorized(image=images[row : row + 1], seed=[seed])[0], together[row])
    assert not np.array_equal(together[0], vectorized(image=images[:1], seed=[2])[0])

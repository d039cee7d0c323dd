"""Random streams of many rows at once: the numbers that TensorFlow's kernel gives for each row alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, refused_ops
from tests.vectorizer.oracle import spec
from vectorizer.converters.philox import as_words, philox_blocks, scrambled
from vectorizer.converters.random_transforms import PER_BLOCK, integers, integers_between, normals, uniforms

RNG = np.random.default_rng(7)
KEYS = RNG.integers(0, 2**64, 16, dtype=np.uint64)
COUNTERS = RNG.integers(0, 2**64, (16, 2), dtype=np.uint64)
#: Where the lower half of the counter carries into the upper one.
COUNTERS[:3, 0] = (2**64 - 1, 2**64 - 2, 2**64 - 100)
SEEDS = RNG.integers(-(2**63), 2**63, (8, 2), dtype=np.int64)


def test_philox_gives_the_published_words() -> None:
    """The known answers that Random123 is distributed with, for 4x32 and 10 rounds."""
    key, low, high = (tf.constant([[value]], tf.uint64) for value in (0, 0, 0))
    words = as_words(philox_blocks(key, low, high)).numpy().reshape(-1)
    assert [f"{word:08x}" for word in words] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    ones = tf.constant([[2**64 - 1]], tf.uint64)
    words = as_words(philox_blocks(ones, ones, ones)).numpy().reshape(-1)
    assert [f"{word:08x}" for word in words] == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]


def blocks(keys: tf.Tensor, counters: tf.Tensor, n: int) -> tf.Tensor:
    low = counters[:, :1] + tf.cast(tf.range(n), tf.uint64)
    return philox_blocks(keys[:, None], low, counters[:, 1:] + tf.cast(low < counters[:, :1], tf.uint64))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("kernel", "transform", "dtypes"),
    [
        (tf.raw_ops.StatelessRandomUniformV2, uniforms, [tf.float32, tf.float64, tf.float16, tf.bfloat16]),
        (tf.raw_ops.StatelessRandomUniformFullIntV2, integers, [tf.int32, tf.int64, tf.uint32, tf.uint64]),
        (tf.raw_ops.StatelessRandomNormalV2, normals, [tf.float32, tf.float64, tf.float16, tf.bfloat16]),
    ],
)
def test_numbers_are_those_of_the_kernel(
    kernel: Any, transform: Any, dtypes: list[tf.DType], *, compiled: bool
) -> None:
    n = 203
    for dtype in dtypes[: 2 if compiled else None]:
        n_blocks = -(-n // PER_BLOCK[dtype])

        @tf.function(jit_compile=compiled)
        def many(keys: tf.Tensor, counters: tf.Tensor, dtype: Any = dtype, n_blocks: int = n_blocks) -> tf.Tensor:
            return tf.reshape(transform(blocks(keys, counters, n_blocks), dtype), [len(KEYS), -1])[:, :n]

        got = many(tf.constant(KEYS), tf.constant(COUNTERS)).numpy()
        want = np.stack(
            [
                kernel(shape=[n], key=KEYS[row : row + 1], counter=COUNTERS[row], alg=1, dtype=dtype).numpy()
                for row in range(len(KEYS))
            ]
        )
        if transform is normals and dtype in (tf.float32, tf.float64):
            np.testing.assert_array_max_ulp(got, want, maxulp=4)
        else:
            np.testing.assert_array_equal(got, want)


def test_seeds_are_scrambled_as_the_kernel_does() -> None:
    for dtype in (np.int64, np.int32):
        seeds = SEEDS.astype(dtype)
        keys, counters = scrambled(tf.constant(seeds))
        alone = [tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed) for seed in seeds]
        np.testing.assert_array_equal(keys, [made.key for made in alone])
        np.testing.assert_array_equal(counters, [made.counter for made in alone])


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_integers_of_a_range_that_overflows_its_dtype(dtype: tf.DType) -> None:
    low, high = tf.constant([dtype.min, -3], dtype), tf.constant([dtype.max, 4], dtype)
    made = blocks(tf.constant(KEYS[:2]), tf.constant(COUNTERS[:2]), 40)
    got = tf.reshape(integers_between(made, low[:, None, None], high[:, None, None]), [2, -1])
    for row in range(2):
        want = tf.raw_ops.StatelessRandomUniformIntV2(
            shape=[got.shape[1]],
            key=KEYS[row : row + 1],
            counter=COUNTERS[row],
            alg=1,
            minval=low[row],
            maxval=high[row],
        )
        np.testing.assert_array_equal(got[row], want)


def test_every_stateless_op_follows_the_seed_of_its_row() -> None:
    def predict(seed: tf.Tensor, low: tf.Tensor) -> dict[str, tf.Tensor]:
        raw = tf.raw_ops
        shape = [3, 5]
        return {
            "uniform": tf.random.stateless_uniform(shape, seed),
            "half": tf.random.stateless_uniform(shape, seed, dtype=tf.float16),
            "normal": tf.random.stateless_normal(shape, seed, mean=2.0, dtype=tf.float64),
            "truncated": tf.random.stateless_truncated_normal([100], seed),
            "truncated_double": tf.random.stateless_truncated_normal([33], seed, dtype=tf.float64),
            "truncated_short": tf.random.stateless_truncated_normal([21], seed, dtype=tf.bfloat16),
            "integer": tf.random.stateless_uniform(shape, seed, minval=low, maxval=50, dtype=tf.int32),
            "any_integer": tf.random.stateless_uniform(shape, seed, minval=None, maxval=None, dtype=tf.int64),
            "categorical": tf.random.stateless_categorical([[0.1, float("-inf"), 2.0], [1.0, 1.0, 0.0]], 4, seed),
            "old_uniform": raw.StatelessRandomUniform(shape=shape, seed=seed),
            "old_normal": raw.StatelessRandomNormal(shape=shape, seed=seed),
            "old_truncated": raw.StatelessTruncatedNormal(shape=shape, seed=seed),
            "old_integer": raw.StatelessRandomUniformInt(shape=shape, seed=seed, minval=-3, maxval=9),
            "old_any_integer": raw.StatelessRandomUniformFullInt(shape=shape, seed=seed, dtype=tf.uint64),
            "key": raw.StatelessRandomGetKeyCounterAlg(seed=seed).key,
            "scalar": tf.random.stateless_uniform([], tf.random.experimental.stateless_fold_in(seed, 5)),
            "none": tf.random.stateless_uniform([0, 3], seed),
        }

    low = np.arange(-4, 4, dtype=np.int32)
    vectorized = check_loopless(predict, {"seed": SEEDS, "low": low}, buckets=(8,), rtol=1e-6)
    assert vectorized.certificate.not_for_xla == ("Assert",)  # an empty range of integers is refused
    with pytest.raises(tf.errors.InvalidArgumentError, match="Need minval < maxval, got 70 >= 50"):
        vectorized(seed=SEEDS[:3], low=[0, 70, 1])


def test_logits_of_each_row_decide_its_draws() -> None:
    def predict(logits: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_categorical(logits[None], 20, seed=[3, 4], dtype=tf.int32)[0]

    logits = RNG.normal(size=(8, 6)).astype(np.float32)
    logits[2, 3] = np.inf
    logits[3, :4] = -np.inf
    check_loopless(predict, {"logits": logits}, buckets=(8,))


def test_shape_that_differs_from_row_to_row_is_refused_by_name() -> None:
    def predict(n: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.random.stateless_uniform([n], seed=[1, 2]))

    assert "shape differs" in refused_ops(predict, n=spec(dtype=tf.int32))["StatelessRandomUniformV2"]


def test_rejection_that_takes_any_number_of_words_is_refused_by_name() -> None:
    def predict(seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_gamma([3], seed, alpha=[1.0, 2.0, 3.0])

    assert "StatelessRandomGammaV" in "".join(refused_ops(predict, seed=spec(2, dtype=tf.int64)))

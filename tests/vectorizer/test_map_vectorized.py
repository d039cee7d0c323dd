"""``map_vectorized(dataset, fn, n)`` gives what ``dataset.map(fn).batch(n)`` gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from vectorizer import DeclarationError, LoopedOpError, SideEffectError, map_vectorized

RNG = np.random.default_rng(5)
IMAGES = RNG.integers(0, 255, (11, 6, 6, 3)).astype(np.uint8)
LABELS = np.arange(11, dtype=np.int64)
SCALE = tf.Variable([0.5, 2.0, 1.0])


class Pair(NamedTuple):
    first: Any
    second: Any


def check_same(dataset: tf.data.Dataset, fn: Callable[..., Any], batch_size: int, **options: Any) -> tf.data.Dataset:
    got = map_vectorized(dataset, fn, batch_size, **options)
    want = dataset.map(fn).batch(batch_size, drop_remainder=options.get("drop_remainder", False))
    assert got.element_spec == want.element_spec
    batches, wanted = list(got), list(want)
    assert len(batches) == len(wanted)
    for batch, expected in zip(batches, wanted, strict=True):
        tf.nest.assert_same_structure(batch, expected)
        for a, b in zip(tf.nest.flatten(batch), tf.nest.flatten(expected), strict=True):
            if b.dtype.is_floating:
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_array_equal(a, b)
    return got


def augment(image: tf.Tensor, label: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Resize, normalize by a variable, and look at the value: what an image pipeline does."""
    pixels = tf.image.resize(tf.cast(image, tf.float32) / 255.0, [4, 4]) * SCALE
    if label % 2 == 0:
        pixels = tf.image.flip_left_right(pixels)
    total = tf.constant(0, tf.int64)
    while total < label:
        total += 3
    return {"pixels": pixels, "mean": tf.reduce_mean(pixels)}, total


@pytest.mark.parametrize(
    "options",
    [{}, {"drop_remainder": True}, {"num_parallel_calls": 2}, {"num_parallel_calls": 2, "deterministic": False}],
)
def test_batches_are_those_of_map_and_batch(options: dict[str, Any]) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))
    if options.get("deterministic") is False:
        got = map_vectorized(dataset, augment, 4, **options)
        totals = sorted(int(total) for _, batch in got for total in batch)
        assert totals == sorted(int(total) for _, total in dataset.map(augment))
    else:
        check_same(dataset, augment, 4, **options)


def test_fewer_elements_than_a_batch_and_an_empty_dataset() -> None:
    dataset = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))
    check_same(dataset.take(2), augment, 4)
    assert list(map_vectorized(dataset.take(0), augment, 4)) == []


@pytest.mark.parametrize(
    "fn",
    [
        lambda element: element["a"] + element["b"]["c"],
        lambda element: (element["a"], [1, 2], 3.0),
        lambda element: {"nested": (element, {"twice": element["a"] * 2.0})},
        lambda element: Pair(element["a"], element["b"]),
    ],
)
def test_structures_go_in_and_come_out_as_they_are(fn: Callable[..., Any]) -> None:
    a, c = RNG.normal(size=(5, 2)).astype(np.float32), RNG.normal(size=(5, 2)).astype(np.float32)
    check_same(tf.data.Dataset.from_tensor_slices({"a": a, "b": {"c": c}}), fn, 2)


def test_strings_are_mapped() -> None:
    words = tf.data.Dataset.from_tensor_slices(["A", "bC", "", "déF"])
    check_same(words, lambda word: (tf.strings.lower(word), tf.strings.length(word)), 3)


def test_ops_that_would_run_once_for_each_row_are_refused_unless_allowed() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(RNG.normal(size=(5, 4)).astype(np.float32))

    def serialized(x: tf.Tensor) -> tf.Tensor:
        return tf.strings.length(tf.io.serialize_tensor(x))

    with pytest.raises(LoopedOpError, match=r"SerializeTensor .test_map_vectorized.py"):
        map_vectorized(dataset, serialized, 2)
    check_same(dataset, serialized, 2, allow_looped=["SerializeTensor"])


def test_random_op_whose_number_all_rows_would_share_is_refused() -> None:
    with pytest.raises(SideEffectError, match="RandomUniform"):
        map_vectorized(tf.data.Dataset.range(5), lambda x: tf.random.uniform([]) + tf.cast(x, tf.float32), 2)


def test_results_of_differing_sizes_are_refused() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(RNG.normal(size=(5, 4)).astype(np.float32))
    with pytest.raises(DeclarationError, match="size differs from element to element"):
        map_vectorized(dataset, lambda x: tf.boolean_mask(x, x > 0), 2)


@pytest.mark.parametrize(
    ("dataset", "batch_size", "message"),
    [
        (lambda: tf.data.Dataset.range(5).batch(2), 2, r"component 0 .* shape \(None,\)"),
        (lambda: tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])), 2, "RaggedTensorSpec"),
        (lambda: tf.data.Dataset.range(5), 0, "batch_size: expected at least 1"),
    ],
)
def test_what_cant_be_a_batch_is_refused(dataset: Callable[[], Any], batch_size: int, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        map_vectorized(dataset(), lambda x: x, batch_size)

"""Where trained weights are kept, and that training gives the same ones again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from models import digits, embedding, lstm
from models.training import Weights, cache_dir, fit, kept


class Trainer:
    """Counts how often it was asked, and never gives the same weights twice."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Weights:
        self.calls += 1
        return {"w": np.full((2, 3), self.calls, np.float32), "b": np.arange(3.0)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROWWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_weights_are_trained_once_and_then_read_back_to_the_bit(cache: Path) -> None:
    train = Trainer()
    first, second = kept("tiny-1", train), kept("tiny-1", train)
    assert train.calls == 1
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.dtype == second[name].dtype
        np.testing.assert_array_equal(value, second[name])
    assert [path.name for path in cache.iterdir()] == ["tiny-1.npz"]


def test_another_recipe_is_trained_for_itself(cache: Path) -> None:
    train = Trainer()
    assert kept("tiny-1", train)["w"][0, 0] == 1
    assert kept("tiny-2", train)["w"][0, 0] == 2
    assert kept("tiny-1", train)["w"][0, 0] == 1


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 cut short", b"\x00" * 100])
def test_a_damaged_file_is_trained_again_and_replaced(cache: Path, damage: bytes) -> None:
    train = Trainer()
    kept("tiny-1", train)
    (cache / "tiny-1.npz").write_bytes(damage)
    assert kept("tiny-1", train)["w"][0, 0] == 2
    assert kept("tiny-1", train)["w"][0, 0] == 2


def test_a_file_cut_off_anywhere_is_trained_again(cache: Path) -> None:
    train = Trainer()
    kept("tiny-1", train)
    whole = (cache / "tiny-1.npz").read_bytes()
    for size in range(0, len(whole), 37):
        (cache / "tiny-1.npz").write_bytes(whole[:size])
        calls = train.calls
        assert kept("tiny-1", train)["w"][0, 0] == calls + 1


def test_a_directory_that_cannot_be_written_is_named_with_what_to_set(cache: Path) -> None:
    cache.write_text("a file where the directory should be")
    with pytest.raises(OSError, match=r"tiny-1\.npz.*ROWWISE_CACHE"):
        kept("tiny-1", Trainer())


def test_failed_training_leaves_nothing_behind(cache: Path) -> None:
    def train() -> Weights:
        raise RuntimeError("diverged")

    with pytest.raises(RuntimeError, match="diverged"):
        kept("tiny-1", train)
    assert not cache.exists()


def test_without_a_setting_weights_go_to_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROWWISE_CACHE")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_dir() == Path("/home/someone/.cache/rowwise")


def test_the_same_seed_trains_the_same_weights() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(96, 4)).astype(np.float32)
    labels = (inputs.sum(axis=1) > 0).astype(np.int64)
    start = {"w": np.zeros((4, 2), np.float32)}

    def network(weights: Mapping[str, tf.Tensor], example: tf.Tensor) -> tf.Tensor:
        return tf.tensordot(example, weights["w"], 1)

    first = fit(network, start, inputs, labels, epochs=5, seed=1)
    again = fit(network, start, inputs, labels, epochs=5, seed=1)
    other = fit(network, start, inputs, labels, epochs=5, seed=2)
    np.testing.assert_array_equal(first["w"], again["w"])
    assert not np.array_equal(first["w"], other["w"])
    assert np.mean((inputs @ first["w"]).argmax(axis=1) == labels) > 0.9


def test_variables_are_made_once_and_shared_by_every_trace() -> None:
    for model, made in (
        (digits, digits.weights().values()),
        (lstm, lstm.weights().values()),
        (embedding, [embedding.table()]),
    ):
        for _ in range(2):
            graph = tf.function(model.predict).get_concrete_function(**model.INPUTS)
            assert {id(variable) for variable in graph.variables} == {id(variable) for variable in made}


def test_weights_first_asked_for_inside_a_trace_are_trained_outside_it() -> None:
    digits.weights.cache_clear()
    graph = tf.function(digits.predict).get_concrete_function(**digits.INPUTS)
    assert {id(v) for v in graph.variables} == {id(v) for v in digits.weights().values()}
    assert digits.weights()["w1"].numpy().shape == (64, 256)

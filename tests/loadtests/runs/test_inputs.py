"""Examples from files and from signatures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtests.runs.inputs import InputsUnreadable, generated, recorded
from rowwise._metadata import RemoteSignature

ONE = RemoteSignature(
    inputs=("x",),
    outputs={"y": np.dtype("float32")},
    input_dtypes={"x": np.dtype("float32")},
    input_shapes={"x": (3,)},
)
TWO = RemoteSignature(
    inputs=("tokens", "weight", "seed"),
    optional=frozenset({"seed"}),
    outputs={"y": np.dtype("float32")},
    input_dtypes={"tokens": np.dtype("int32"), "weight": np.dtype("float64"), "seed": np.dtype("int64")},
    input_shapes={"tokens": (None,), "weight": (), "seed": ()},
)


def test_a_line_is_an_example_as_predict_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('[1, 2, 3]\n\n{"x": [4, 5, NaN]}\n{"x": {"b64": "/w=="}}\n')
    first, second, third = recorded(path, ONE)
    assert first == [1, 2, 3]
    assert np.isnan(second["x"][2])
    assert third == {"x": b"\xff"}


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("[1]\n{\n")
    with pytest.raises(InputsUnreadable, match=r"x\.jsonl:2: this is not JSON"):
        recorded(path, ONE)


@pytest.mark.parametrize(("array", "n"), [(np.ones((5, 3), np.float32), 5), (np.ones(3, np.float32), 1)])
def test_the_first_axis_of_an_array_counts_examples(tmp_path: Path, array: Any, n: int) -> None:
    np.save(tmp_path / "x.npy", array)
    found = recorded(tmp_path / "x.npy", ONE)
    assert len(found) == n
    assert found[0]["x"].shape == (3,)


def test_an_archive_has_an_array_for_each_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", tokens=np.zeros((4, 7), np.int32), weight=np.arange(4.0))
    found = recorded(tmp_path / "x.npz", TWO)
    assert [float(example["weight"]) for example in found] == [0, 1, 2, 3]
    assert found[0]["tokens"].shape == (7,)


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"tokens": np.zeros((4, 7))}, "expected arrays 'tokens', 'weight'"),
        ({"tokens": np.zeros((4, 7)), "weight": np.zeros(4), "more": np.zeros(4)}, "got 'tokens', 'weight', 'more'"),
        ({"tokens": np.zeros((4, 7)), "weight": np.zeros(3)}, "different numbers of examples"),
        ({"tokens": np.zeros((4, 7, 2)), "weight": np.zeros(4)}, r"shape \[4, 7, 2\]"),
    ],
)
def test_arrays_that_are_not_the_models_inputs_are_refused(tmp_path: Path, arrays: Any, match: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(InputsUnreadable, match=match):
        recorded(tmp_path / "x.npz", TWO)


@pytest.mark.parametrize("name", ["missing.jsonl", "empty.jsonl", "broken.npy", "x.csv"])
def test_files_that_hold_no_examples_say_so(tmp_path: Path, name: str) -> None:
    if not name.startswith("missing"):
        (tmp_path / name).write_text("")
    with pytest.raises(InputsUnreadable, match=name):
        recorded(tmp_path / name, ONE)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputsUnreadable, match="can't be read"):
        recorded(tmp_path / "x.npy", ONE)


def test_examples_are_made_as_the_signature_says_and_by_the_seed() -> None:
    made = generated(TWO, n=50, seed=4, max_length=9)
    lengths = {len(example["tokens"]) for example in made}
    assert min(lengths) >= 1
    assert max(lengths) <= 9
    assert len(lengths) > 3
    assert all(set(example) == {"tokens", "weight"} for example in made), "optional inputs are left out"
    assert made[0]["tokens"].dtype == np.int32
    again, other = generated(TWO, n=50, seed=4, max_length=9), generated(TWO, n=50, seed=5, max_length=9)
    assert all(np.array_equal(a["tokens"], b["tokens"]) for a, b in zip(made, again, strict=True))
    assert any(a["weight"] != b["weight"] for a, b in zip(made, other, strict=True))


def test_strings_are_words_and_an_unknown_shape_asks_for_real_inputs() -> None:
    words = RemoteSignature(inputs=("s",), outputs={"y": None}, input_dtypes={"s": None}, input_shapes={"s": (2,)})
    (example,) = generated(words, n=1, seed=0, max_length=3)
    assert all(isinstance(word, str) and len(word) == 8 for word in example["s"])
    unknown = RemoteSignature(inputs=("x",), outputs={"y": None}, input_shapes={"x": None})
    with pytest.raises(InputsUnreadable, match="real inputs by --inputs"):
        generated(unknown, n=1, seed=0, max_length=3)

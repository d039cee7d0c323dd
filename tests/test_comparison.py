"""What a shadow's report says of two versions' answers."""

from __future__ import annotations

import numpy as np
import pytest

from server.comparison import Comparison, OutputDifference
from server.signature import LengthAxis, ModelSignature, TensorSignature


def tensor(name: str, dtype: str = "float32", shape: tuple[int | str, ...] = ()) -> TensorSignature:
    return TensorSignature(name=name, dtype=dtype, shape=shape)


def test_differences_are_told_in_absolute_terms_in_steps_and_in_rows() -> None:
    found = OutputDifference()
    one = np.array([1.0, -2.0], np.float32)
    assert found.add(one, one.copy())
    assert found.add(one, np.nextafter(one, np.float32(9.0)))
    assert (found.n_rows_differing, found.max_ulp) == (0, 1.0)
    assert not found.add(one, one + np.float32(0.25))
    assert (found.n_rows_differing, found.max_abs) == (1, 0.25)
    assert not found.add(one, np.array([np.nan, -2.0], np.float32))
    assert found.n_rows_differing == 2
    assert not found.add(one, one[:1])
    assert (found.n_rows_differing, found.n_rows_of_other_shape) == (2, 1)


@pytest.mark.parametrize(
    ("live", "candidate", "same"),
    [
        (np.float32(np.nan), np.float32(np.nan), True),
        (np.float32(np.inf), np.float32(np.inf), True),
        (np.float32(np.inf), np.float32(-np.inf), False),
        (np.float32(0.0), np.float32(-0.0), True),
        (np.int32(3), np.int32(4), False),
        (np.array(b"a\0", object), np.array(b"a\0", object), True),
        (np.array(b"a", object), np.array(b"b", object), False),
        (np.complex64(1 + 1j), np.complex64(1 + 2j), False),
        (np.float32(1e-9), np.float32(2e-9), True),
    ],
)
def test_one_value(live: np.ndarray, candidate: np.ndarray, *, same: bool) -> None:
    found = OutputDifference()
    assert found.add(np.asarray(live), np.asarray(candidate)) == same
    assert found.n_rows_differing == (not same)
    assert np.isfinite(found.max_abs)
    assert np.isfinite(found.max_ulp) or not same


def test_what_lies_beyond_a_rows_true_length_is_not_compared() -> None:
    signature = ModelSignature(
        inputs=(tensor("x", shape=("n",)),),
        outputs=(tensor("y", shape=("n",)), tensor("total")),
        axes=(LengthAxis(name="n", max=4, buckets=(4,)),),
    )
    live = [np.array([[1, 2, -9, -9], [1, 2, 3, -9]], np.float32), np.array([3, 6], np.float32)]
    other = [np.array([[1, 2, 7, 7], [1, 2, 5, 7]], np.float32), np.array([3, 8], np.float32)]
    found = Comparison()
    assert found.compare(signature, "predict", live, other, [(2,), (3,)]) == 1
    found.add(2, 1, ratio=0.5)
    report = found.to_json()
    assert (report["batches"], report["rows"], report["rows_differing"], report["time_ratio"]) == (1, 2, 1, 0.5)
    assert report["outputs"]["y"]["max_abs"] == 2.0
    assert report["outputs"]["total"]["rows_differing"] == 1

"""The oracle of every test here: batched equals one by one, the function itself called eagerly on each example."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer import Vectorized, vectorize
from vectorizer.trace import SINGLE_OUTPUT

__all__ = ["BUCKETS", "N_ROWS", "check", "one_by_one", "spec"]

BUCKETS = (1, 4)
#: One row, a few, an odd number of them over two buckets, a full bucket.
N_ROWS = (1, 2, 7, 4)


def spec(*shape: int | None, dtype: tf.DType = tf.float32) -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype)


def one_by_one(function: Callable[..., Any], inputs: Mapping[str, Sequence[Any]]) -> list[list[np.ndarray]]:
    """Return each example's answers, outputs flattened in their order."""
    n_rows = len(next(iter(inputs.values())))
    return [
        [np.asarray(value) for value in _flat(function(**{name: tf.constant(v[row]) for name, v in inputs.items()}))]
        for row in range(n_rows)
    ]


def _flat(answer: Any) -> list[Any]:
    if isinstance(answer, Mapping):
        return list(answer.values())
    return list(answer) if isinstance(answer, (tuple, list)) else [answer]


def check(
    function: Callable[..., Any],
    inputs: Mapping[str, Sequence[Any]],
    *,
    buckets: Sequence[int] = BUCKETS,
    n_rows: Sequence[int] = N_ROWS,
    rtol: float = 1e-5,
    **options: Any,
) -> Vectorized:
    """Vectorize by the values' own types and compare at each number of rows."""
    arrays = {name: np.asarray(values) for name, values in inputs.items()}
    specs = {
        name: tf.TensorSpec(a.shape[1:], tf.string if a.dtype == object else tf.as_dtype(a.dtype))
        for name, a in arrays.items()
    }
    vectorized = vectorize(function, inputs=specs, buckets=buckets, **options)
    expected = one_by_one(function, arrays)
    for n in n_rows:
        assert n <= len(expected), "the test gives too few examples"
        answer = vectorized(**{name: a[:n] for name, a in arrays.items()})
        # A single output is given bare: a list is its rows then.
        got = [answer] if vectorized.function.output_names == (SINGLE_OUTPUT,) else _flat(answer)
        for index, output in enumerate(got):
            assert len(output) == n
            for row in range(n):
                want = expected[row][index]
                assert output[row].dtype == want.dtype if isinstance(output[row], np.ndarray) else True
                np.testing.assert_equal(np.shape(output[row]), want.shape)
                if want.dtype.kind in "fc":
                    np.testing.assert_allclose(output[row], want, rtol=rtol, atol=rtol)
                else:
                    np.testing.assert_array_equal(output[row], want)
    return vectorized

"""Updates at an index of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, check_refuses_alike, refused_ops
from tests.vectorizer.oracle import spec
from vectorizer import vectorize

RNG = np.random.default_rng(5)
X = RNG.integers(-9, 9, size=(8, 4, 5))
UPDATES = RNG.integers(-9, 9, size=(8, 3))
#: Twice the same in some rows: the last update of a place wins, sums add up.
INDICES = RNG.integers(0, 4, size=(8, 3, 2))
INDICES[0, 1] = INDICES[0, 2] = INDICES[0, 0]


def scattered(x: Any, i: Any, u: Any) -> dict[str, tf.Tensor]:
    i = tf.clip_by_value(i, 0, 3)
    rows = tf.repeat(u[:, tf.newaxis], 5, axis=1)
    return {
        "update": tf.tensor_scatter_nd_update(x, i, u),
        "add": tf.tensor_scatter_nd_add(x, i, u),
        "sub": tf.tensor_scatter_nd_sub(x, i, u),
        "max": tf.tensor_scatter_nd_max(x, i, u),
        "min": tf.tensor_scatter_nd_min(x, i, u),
        "whole_rows": tf.tensor_scatter_nd_add(x, i[:, :1], rows),
        "new": tf.scatter_nd(i, u, [4, 5]),
        "new_rows": tf.scatter_nd(i[:, :1], rows, tf.constant([4, 5], i.dtype)),
        "new_cubes": tf.scatter_nd(i[tf.newaxis], u[tf.newaxis], [4, 6]),
    }


@pytest.mark.parametrize(("dtype", "index"), [(np.float32, np.int32), (np.int64, np.int64)])
def test_update_of_each_row(dtype: Any, index: Any) -> None:
    given = {"x": X.astype(dtype), "i": INDICES.astype(index), "u": UPDATES.astype(dtype)}
    check_loopless(scattered, given)


@pytest.mark.parametrize("stacked", [{"x"}, {"i"}, {"u"}, {"x", "i"}, {"i", "u"}])
def test_what_is_shared_is_repeated(stacked: set[str]) -> None:
    values = {"x": X.astype(np.float32), "i": INDICES.astype(np.int32), "u": UPDATES.astype(np.float32)}

    def predict(**own: tf.Tensor) -> dict[str, tf.Tensor]:
        return scattered(**{name: own.get(name, tf.constant(value[0])) for name, value in values.items()})

    names = sorted(stacked)
    functions: dict[str, Any] = {
        "x": lambda x: predict(x=x),
        "i": lambda i: predict(i=i),
        "u": lambda u: predict(u=u),
        "i,x": lambda i, x: predict(i=i, x=x),
        "i,u": lambda i, u: predict(i=i, u=u),
    }
    check_loopless(functions[",".join(names)], {name: values[name] for name in names}, buckets=(1, 7))


def test_index_out_of_range_fails_in_its_row_and_writes_into_no_other() -> None:
    for update in (
        lambda x, i: tf.tensor_scatter_nd_update(x, [[i]], [1.0]),
        lambda x, i: tf.tensor_scatter_nd_max(x, [[i]], [1.0]),
        lambda x, i: tf.scatter_nd([[i]], x[:1], [3]),
    ):
        vectorized = vectorize(update, inputs={"x": spec(3), "i": spec(dtype=tf.int32)}, buckets=(4,))
        values = {"x": RNG.normal(size=(5, 3)).astype(np.float32), "i": np.array([0, 2, 3, -1, 7], np.int32)}
        check_refuses_alike(update, vectorized, values, first_bad=2)


def test_shape_of_each_row_is_refused_by_name() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.scatter_nd([[0]], x, [n]))

    assert "the shape of the result differs" in refused_ops(predict, x=spec(1), n=spec(dtype=tf.int32))["ScatterNd"]

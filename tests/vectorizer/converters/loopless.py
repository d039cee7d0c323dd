"""The oracle of the converters' tests: equal at any number of rows, no loop, refusing what one by one refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import check, one_by_one
from vectorizer import LoopedOpError, Vectorized, vectorize

__all__ = ["BUCKETS", "N_ROWS", "ONE_BUCKET", "check_loopless", "check_refuses_alike", "refused_ops"]

#: One row, and a number that few dimensions of examples have: where rows pass for one of them, a graph is wrong there.
BUCKETS = (1, 7)
#: For what differs from another test in a number or a dtype alone, and no more in what becomes of a batch of one: a
#: bucket is half of a test's time.
ONE_BUCKET = (7,)
#: One row, a few that are padded, a full bucket, and more than it takes.
N_ROWS = (1, 2, 7, 8)


def check_loopless(
    function: Callable[..., Any],
    inputs: Mapping[str, Sequence[Any]],
    *,
    buckets: Sequence[int] | None = None,
    **options: Any,
) -> Vectorized:
    """Compare with the function itself, and require that no op loops over the rows; given ``buckets`` are filled."""
    vectorized = check(function, inputs, buckets=buckets or BUCKETS, n_rows=buckets or N_ROWS, **options)
    certificate = vectorized.certificate
    assert certificate.looped == ()
    assert certificate.loops_batched == certificate.loops_unbatched
    return vectorized


def check_refuses_alike(
    function: Callable[..., Any], vectorized: Vectorized, inputs: Mapping[str, Sequence[Any]], *, first_bad: int
) -> None:
    """Require that each example from ``first_bad`` on fails alone, and in the batch, wherever it stands in it."""
    arrays: dict[str, Any] = {name: np.asarray(values) for name, values in inputs.items()}
    n_rows = len(next(iter(arrays.values())))
    assert first_bad < n_rows
    for bad in range(first_bad, n_rows):
        with pytest.raises(tf.errors.InvalidArgumentError):
            one_by_one(function, {name: values[bad : bad + 1] for name, values in arrays.items()})
        for order in ([bad, 0, 1], [0, bad, 1], [0, 1, bad]):
            with pytest.raises(tf.errors.InvalidArgumentError):
                vectorized(**{name: values[order] for name, values in arrays.items()})


def refused_ops(function: Callable[..., Any], **inputs: tf.TensorSpec) -> dict[str, str]:
    """Return the ops that the function is refused for, with the message."""
    with pytest.raises(LoopedOpError) as caught:
        vectorize(function, inputs=inputs, buckets=(2,))
    return dict.fromkeys(caught.value.ops, str(caught.value))

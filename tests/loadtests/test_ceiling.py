"""What a model alone can do, from the times of its full batches."""

from __future__ import annotations

import numpy as np
import pytest

from loadtests.ceiling import batch_of, best_rows_per_s
from server.engine.staging import Staging
from server.protocol import Rows
from server.signature import ModelSignature, TensorSignature

FLAT = {((), 1): 1e-3, ((), 8): 2e-3, ((), 32): 16e-3}


def test_the_best_bucket_that_the_callers_can_fill_is_the_ceiling() -> None:
    assert best_rows_per_s(FLAT, {(): 1.0}, most_rows=128) == pytest.approx(4_000)
    assert best_rows_per_s(FLAT, {(): 1.0}, most_rows=7) == pytest.approx(1_000)


def test_fewer_callers_than_the_smallest_bucket_has_rows_pad_it() -> None:
    assert best_rows_per_s({((), 8): 2e-3}, {(): 1.0}, most_rows=1) == pytest.approx(4_000)


def test_examples_of_each_length_take_their_own_time() -> None:
    took_s = {((32,), 8): 2e-3, ((64,), 8): 4e-3}
    shares = {(32,): 0.25, (64,): 0.75}
    assert best_rows_per_s(took_s, shares, most_rows=8) == pytest.approx(8 / (0.25 * 2e-3 + 0.75 * 4e-3))


def test_a_batch_is_full_of_the_examples_in_turn() -> None:
    signature = ModelSignature(
        inputs=(TensorSignature(name="x", dtype="float32", shape=()),),
        outputs=(TensorSignature(name="y", dtype="float32", shape=()),),
    )
    batch = batch_of(Rows(3, (np.array([1, 2, 3], np.float32),)), bucket=8)
    (staged,) = Staging(signature, (), [8]).fill(batch)
    assert staged.tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
    assert (batch.n_rows, batch.n_padding) == (8, 0)

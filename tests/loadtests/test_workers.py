"""The stand-in for an engine's model answers as its signature says, and counts what it ran."""

from __future__ import annotations

import numpy as np

from loadtests.workers import SIGNATURE, Spinning
from server.batching import Batcher, CostTable, Group, Item, QueueLimits
from server.protocol import Rows


def test_a_batch_answers_each_row_with_its_first_numbers() -> None:
    costs = CostTable({1: 1e-6, 4: 2e-6})
    executor = Spinning(costs)
    batcher = executor.batcher = Batcher(
        clock=lambda: 0.0, executor=executor, defer=lambda call: call(), limits=QueueLimits()
    )
    rows = Rows(3, (np.arange(192, dtype=np.float32).reshape(3, 64),))
    done: list[Item] = []
    item = Item(Group("digits", costs), 3, rows, arrived_s=0.0, deadline_s=None, on_done=done.append)
    batcher.submit(item)
    assert done == [item]
    answered: list[list[float]] = []
    for part in item.parts:
        outputs: list[np.ndarray] = part.outputs  # type: ignore[assignment]
        answered += outputs[0][part.offset : part.offset + part.stop - part.start].tolist()
    assert answered == [row[:10] for row in rows.columns[0].tolist()]  # type: ignore[union-attr]
    assert len(answered[0]) == SIGNATURE.outputs[0].shape[0]
    assert executor.n_rows == 3

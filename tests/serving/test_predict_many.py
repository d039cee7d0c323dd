"""Requests that are admitted together end as each would alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.batching import Cancelled, QueueFull
from server.protocol import Column
from server.serving import Answer
from server.signature import ModelSignature, TensorSignature
from tests.serving.test_served_model import FIXED, VARIABLE, Rig, fixed, variable

#: Lengths vary, outputs do not.
STATES = ModelSignature(
    inputs=VARIABLE.inputs, outputs=(TensorSignature(name="x", dtype="int32", shape=(8,)),), axes=VARIABLE.axes
)


class Answers:
    """Takes the rows of each request by its tag, or its error."""

    def __init__(self) -> None:
        self.rows: dict[object, list[list[object]]] = {}
        self.errors: dict[object, type] = {}
        self.n_ran = 0

    def ran(self, tag: object, outputs: Sequence[Column], start: int, stop: int, queue_s: float) -> None:
        assert queue_s >= 0
        self.n_ran += 1
        self._take(tag, [column[start:stop] for column in outputs])

    def ended(self, tag: object, answer: Answer) -> None:
        if answer.error is None:
            self._take(tag, answer.outputs)
        else:
            self.errors[tag] = type(answer.error)

    def _take(self, tag: object, outputs: Sequence[Column]) -> None:
        assert tag not in self.rows
        self.rows[tag] = [[np.asarray(row).tolist() for row in column] for column in outputs]


def many(rig: Rig, counts: Sequence[int], lengths: Sequence[int] | None) -> tuple[Answers, Sequence[object]]:
    answers = Answers()
    rows = fixed(*range(sum(counts))) if lengths is None else variable(*lengths)
    places = [sum(counts[:k]) for k in range(len(counts))]
    handles = rig.model.predict_many(
        rows,
        counts,
        places,
        tags=range(len(counts)),
        callers=[None] * len(counts),
        timeout_s=None,
        spent_s=0.0,
        taker=answers,
    )
    return answers, handles


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.sampled_from([FIXED, VARIABLE, STATES]), st.data())
def test_each_request_gets_the_rows_that_it_gets_alone(
    counts: list[int], signature: ModelSignature, data: st.DataObject
) -> None:
    n_rows = sum(counts)
    lengths = None
    if signature.axes:
        lengths = data.draw(st.lists(st.integers(0, 8), min_size=n_rows, max_size=n_rows))
    together = Rig(signature)
    answers, _ = many(together, counts, lengths)
    together.run()
    alone = Rig(signature)
    rows = fixed(*range(n_rows)) if lengths is None else variable(*lengths)
    first = 0
    for tag, count in enumerate(counts):
        stop = first + count
        own = type(rows)(
            count,
            tuple(column[first:stop] for column in rows.columns),
            None if rows.lengths is None else rows.lengths[first:stop],
        )
        alone.ask(own)
        alone.run()
        answer = alone.answers.pop()
        assert answers.rows[tag] == [[np.asarray(row).tolist() for row in column] for column in answer.outputs]
        first = stop
    assert together.model.statistics.n_succeeded == len(counts)


def test_requests_of_one_length_share_a_batch_and_their_outputs() -> None:
    rig = Rig(STATES)
    answers, _ = many(rig, [1] * 6, [3, 4, 3, 8, 1, 4])
    rig.run()
    assert answers.n_ran == 6
    assert sorted(ran.batch.n_rows for ran in rig.executor.ran) == [1, 1, 4]


def test_who_leaves_is_taken_back_whatever_its_rows_share() -> None:
    rig = Rig(VARIABLE)
    answers, handles = many(rig, [1, 2, 1], [2, 1, 8, 2])
    for handle in handles[:2]:
        rig.model.take_back(handle)
    rig.run()
    assert answers.errors == {0: Cancelled, 1: Cancelled}
    assert list(answers.rows) == [2]


@pytest.mark.parametrize("counts", [[1, 1, 1], [1, 2, 1]])
def test_who_does_not_fit_is_refused_and_the_others_are_not(counts: list[int]) -> None:
    rig = Rig(VARIABLE, max_rows=1)
    answers, handles = many(rig, counts, [2, *[2, 8][: counts[1]], 2])
    assert len(handles) == 3
    rig.run()
    assert answers.errors.keys() | answers.rows.keys() == {0, 1, 2}
    assert not answers.errors.keys() & answers.rows.keys()
    assert set(answers.errors.values()) == {QueueFull}
    assert answers.rows

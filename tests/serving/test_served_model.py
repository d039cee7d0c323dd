"""From a request's rows to items of the core, and from their parts back to one answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from server.batching import (
    Batcher,
    Cancelled,
    CostTable,
    DeadlineExceeded,
    ExecutionFailed,
    Group,
    QueueFull,
    QueueLimits,
    QueueTimeout,
)
from server.protocol import Rows
from server.serving import Answer, ServedModel
from server.signature import LengthAxis, ModelSignature, TensorSignature
from tests.batching.doubles import SMALL_COSTS, ManualClock, ManualExecutor, ManualTicks


class ArrayExecutor(ManualExecutor):
    """Answers with the arrays that a compiled graph gives: each output is a padded copy of the input of its name."""

    signature: ModelSignature

    def finish(self, index: int = 0, *, error: BaseException | None = None) -> None:
        assert self.batcher is not None
        ran = self.running.pop(index)
        self.batcher.finished(ran.batch, None if error else self._outputs(ran), error)

    def _outputs(self, ran: Any) -> list[np.ndarray]:
        lengths = ran.batch.group.key
        sizes = {axis.name: size for axis, size in zip(self.signature.axes, lengths, strict=True)}
        outputs = []
        for index, tensor in enumerate(self.signature.outputs):
            shape = (ran.batch.bucket, *tensor.padded_shape(sizes))
            # What lies beyond a row's true length, and in padding rows, is garbage: it must never be seen.
            array = np.full(
                shape,
                b"garbage" if tensor.dtype == "string" else -99,
                dtype=object if tensor.dtype == "string" else tensor.dtype,
            )
            row = 0
            for item, start, stop in ran.spans:
                for number in range(start, stop):
                    value = np.asarray(item.payload.columns[index][item.first + number], array.dtype)
                    array[(row, *map(slice, value.shape))] = value if value.ndim else value.item()
                    row += 1
            outputs.append(array)
        return outputs


class Rig:
    """A served model over the real batcher, driven by hand."""

    def __init__(self, signature: ModelSignature, *, max_rows: int = 100, lanes: int = 1) -> None:
        self.clock = ManualClock()
        self.ticks = ManualTicks()
        self.executor = ArrayExecutor(self.clock, lanes)
        self.executor.signature = signature
        self.batcher = Batcher(
            clock=self.clock, executor=self.executor, defer=self.ticks, limits=QueueLimits(max_rows=max_rows)
        )
        self.executor.batcher = self.batcher
        keys = [(size,) for size in signature.axes[0].buckets] if signature.axes else [()]
        costs = CostTable({rows: cost / 1000 for rows, cost in SMALL_COSTS.items()})
        self.groups = {key: Group(key, costs, label="model 'm'") for key in keys}
        self.model = ServedModel(
            "m", 3, signature, self.groups, batcher=self.batcher, clock=self.clock, default_timeout_s=5.0
        )
        self.answers: list[Answer] = []

    def ask(self, rows: Rows, *, timeout_s: float | None = None) -> Any:
        return self.model.predict(rows, timeout_s=timeout_s, on_done=self.answers.append)

    def run(self) -> None:
        """End the tick and finish batches until none is left."""
        self.ticks.run()
        while self.executor.running:
            self.clock.advance(0.001)
            self.executor.finish()
            self.ticks.run()

    def only_answer(self) -> Answer:
        (answer,) = self.answers
        return answer


FIXED = ModelSignature(
    inputs=(
        TensorSignature(name="x", dtype="float32", shape=(2,)),
        TensorSignature(name="s", dtype="string", shape=()),
    ),
    outputs=(
        TensorSignature(name="x", dtype="float32", shape=(2,)),
        TensorSignature(name="s", dtype="string", shape=()),
    ),
)
VARIABLE = ModelSignature(
    inputs=(TensorSignature(name="x", dtype="int32", shape=("n",)), TensorSignature(name="k", dtype="int64", shape=())),
    outputs=(
        TensorSignature(name="x", dtype="int32", shape=("n",)),
        TensorSignature(name="k", dtype="int64", shape=()),
    ),
    axes=(LengthAxis(name="n", max=8, buckets=(2, 4, 8)),),
)


def fixed(*values: int) -> Rows:
    x = np.array([[value, -value] for value in values], np.float32)
    return Rows(len(values), (x, np.array([f"{value}\0\0".encode() for value in values], object)))


def variable(*lengths: int) -> Rows:
    return Rows(
        len(lengths),
        ([np.arange(length, dtype=np.int32) + 10 * row for row, length in enumerate(lengths)], np.arange(len(lengths))),
        [(length,) for length in lengths],
    )


def assert_fixed(answer: Answer, *values: int) -> None:
    assert answer.error is None
    x, s = answer.outputs
    assert np.asarray(x)[:, 0].tolist() == list(values)
    assert list(s) == [f"{value}\0\0".encode() for value in values]
    assert np.asarray(s).dtype == object


def assert_variable(answer: Answer, *lengths: int) -> None:
    assert answer.error is None
    x, k = answer.outputs
    assert [row.tolist() for row in x] == [[10 * row + i for i in range(length)] for row, length in enumerate(lengths)]
    assert np.asarray(k).tolist() == list(range(len(lengths)))


@pytest.fixture
def rig() -> Rig:
    return Rig(FIXED)


def test_request_gets_its_own_rows_out_of_a_shared_batch(rig: Rig) -> None:
    rig.ask(fixed(1))
    rig.ask(fixed(2, 3))
    rig.ask(fixed(4))
    rig.clock.advance(0.25)
    rig.run()
    for answer, values in zip(rig.answers, ((1,), (2, 3), (4,)), strict=True):
        assert_fixed(answer, *values)
        assert answer.batch_rows == 4
        assert answer.bucket == 4
        assert answer.batch_id == 1
        assert answer.queue_s == pytest.approx(0.25)
        assert answer.compute_s == pytest.approx(0.001)
        assert answer.reason


@pytest.mark.parametrize("n_rows", [8, 9, 17, 40])
def test_request_that_is_split_over_batches_comes_back_in_order(rig: Rig, n_rows: int) -> None:
    rig.ask(fixed(-1, -2, -3))
    rig.ask(fixed(*range(n_rows)))
    rig.run()
    assert_fixed(rig.answers[0], -1, -2, -3)
    assert_fixed(rig.answers[1], *range(n_rows))


def test_split_request_whose_batches_finish_out_of_order_comes_back_in_order() -> None:
    rig = Rig(FIXED, lanes=3)
    rig.ask(fixed(*range(20)))
    rig.ticks.run()
    assert len(rig.executor.running) == 3
    for index in (1, 1, 0):
        assert rig.answers == []
        rig.executor.finish(index)
    assert_fixed(rig.only_answer(), *range(20))


@pytest.mark.parametrize("lengths", [(3,), (1, 2), (8, 1, 4, 0, 3, 2, 8), (0,), tuple(range(9)) * 3])
def test_rows_of_every_length_come_back_in_the_requests_order_and_at_their_own_length(lengths: tuple[int, ...]) -> None:
    rig = Rig(VARIABLE)
    rig.ask(variable(*lengths))
    rig.run()
    assert_variable(rig.only_answer(), *lengths)
    groups = {ran.batch.group for ran in rig.executor.ran}
    assert groups == {rig.groups[next((size,) for size in (2, 4, 8) if length <= size)] for length in lengths}


def test_requests_of_several_lengths_share_batches_by_padded_length() -> None:
    rig = Rig(VARIABLE)
    for lengths in ((1, 8), (2, 7), (5,), (0,)):
        rig.ask(variable(*lengths))
    rig.run()
    assert sorted([len(row) for row in answer.outputs[0]] for answer in rig.answers) == [[0], [1, 8], [2, 7], [5]]
    rows = {key: sum(ran.batch.n_rows for ran in rig.executor.ran if ran.batch.group.key == key) for key in rig.groups}
    assert rows == {(2,): 3, (4,): 0, (8,): 3}
    assert len(rig.executor.ran) < 6


def test_two_shapes_in_one_batch_crash_it() -> None:
    rig = Rig(VARIABLE)
    for lengths in ((3,), (7,), (0, 8), (1, 5, 2)):
        rig.ask(variable(*lengths))
    rig.run()
    assert len(rig.answers) == 4
    asked = {(1, 3): (3,), (1, 7): (7,), (2, 0): (0, 8), (3, 1): (1, 5, 2)}
    for answer in rig.answers:
        x, k = answer.outputs
        assert_variable(answer, *asked.pop((len(k), len(x[0]))))


def test_all_rows_are_queued_or_none() -> None:
    rig = Rig(VARIABLE, max_rows=3)
    rig.ask(variable(1, 8, 8))
    with pytest.raises(QueueFull):
        rig.ask(variable(1, 8, 8, 8))
    # Each length has a queue of its own here: the second request fits the first of them and not the second.
    rig.run()
    assert_variable(rig.only_answer(), 1, 8, 8)
    assert sum(ran.batch.n_rows for ran in rig.executor.ran) == 3
    assert rig.batcher.n_waiting == 0
    rig.ask(variable(1, 8, 2))
    rig.run()
    assert_variable(rig.answers[1], 1, 8, 2)


def test_deadline_that_has_passed_is_refused_and_the_default_is_the_models(rig: Rig) -> None:
    with pytest.raises(DeadlineExceeded):
        rig.ask(fixed(1), timeout_s=0.0)
    assert rig.answers == []
    rig.ask(fixed(1))
    rig.ask(fixed(2), timeout_s=60.0)
    rig.clock.advance(6.0)
    rig.batcher.expire()
    assert isinstance(rig.only_answer().error, QueueTimeout)
    assert rig.only_answer().outputs == []
    rig.run()
    assert_fixed(rig.answers[1], 2)


def test_cancelled_request_is_answered_once_and_its_neighbour_unharmed(rig: Rig) -> None:
    ticket = rig.ask(fixed(1))
    rig.ask(fixed(2))
    assert ticket.cancel()
    assert isinstance(rig.only_answer().error, Cancelled)
    assert not ticket.cancel()
    rig.run()
    assert_fixed(rig.answers[1], 2)
    assert [ran.batch.n_rows for ran in rig.executor.ran] == [1]


def test_request_that_runs_already_cannot_be_taken_back(rig: Rig) -> None:
    ticket = rig.ask(fixed(1))
    rig.ticks.run()
    assert not ticket.cancel()
    rig.run()
    assert_fixed(rig.only_answer(), 1)
    assert not ticket.cancel()


def test_cancelling_rows_of_several_lengths_answers_once_when_the_running_ones_are_done() -> None:
    rig = Rig(VARIABLE)
    ticket = rig.ask(variable(1, 8))
    rig.ticks.run()
    assert len(rig.executor.running) == 1
    assert ticket.cancel()
    assert rig.answers == []
    rig.run()
    assert isinstance(rig.only_answer().error, Cancelled)
    assert rig.only_answer().outputs == []
    assert len(rig.executor.ran) == 1


def test_failed_batch_gives_its_requests_the_error_and_the_next_one_works(rig: Rig) -> None:
    rig.ask(fixed(1))
    rig.ask(fixed(2))
    rig.ticks.run()
    rig.executor.finish(error=ValueError("index 9 is out of range"))
    assert [type(answer.error) for answer in rig.answers] == [ExecutionFailed] * 2
    assert all("index 9" in str(answer.error) for answer in rig.answers)
    rig.ask(fixed(3))
    rig.run()
    assert_fixed(rig.answers[2], 3)


def test_one_failed_part_fails_the_whole_request() -> None:
    rig = Rig(VARIABLE, lanes=2)
    rig.ask(variable(1, 8))
    rig.ticks.run()
    rig.executor.finish(0)
    assert rig.answers == []
    rig.executor.finish(0, error=ValueError("bad"))
    answer = rig.only_answer()
    assert isinstance(answer.error, ExecutionFailed)
    assert answer.outputs == []


def test_answer_of_a_request_that_never_ran_has_no_batch(rig: Rig) -> None:
    rig.ask(fixed(1)).cancel()
    answer = rig.only_answer()
    assert (answer.batch_id, answer.bucket, answer.batch_rows, answer.compute_s, answer.reason) == (0, 0, 0, 0.0, "")
    assert answer.queue_s == 0.0

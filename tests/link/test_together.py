"""Requests that are admitted together cross the link as one piece, there and back, and still end one by one."""

from __future__ import annotations

import numpy as np
import pytest

from server.batching import Cancelled, QueueFull
from server.errors import RowwiseError
from server.link.errors import EngineGone
from server.protocol import Rows
from tests.link.ends import ECHO, Answer, Ends, Lot, Model, ask, run, until


def test_requests_of_one_lot_are_admitted_at_once_and_their_answers_share_arrays() -> None:
    async def test() -> None:
        async with Ends(Model()) as ends:
            lot = Lot(ends.model(), 1, 3, 2)
            await until(lambda: len(lot.results) == 3)
            assert lot.results == [(0, [0]), (1, [3, 6, 9]), (2, [12, 15])]
            assert len(lot.outputs) == 1
            (asked,) = ends.serving[0].model.together
            assert (asked.counts, asked.places) == ([1, 3, 2], [0, 1, 4])
            assert asked.callers == ["caller 0", "caller 1", "caller 2"]
            assert ends.waits == [("sum", 0.25)] * 3

    run(test)


def test_lots_of_one_deadline_meet_and_others_stay_apart() -> None:
    async def test() -> None:
        async with Ends(Model()) as ends:
            lots = [Lot(ends.model(), 1, 1, timeout_s=timeout_s) for timeout_s in (1.0, 60.0)]
            alone = ask(ends.model(), 7)
            await until(lambda: all(len(lot.results) == 2 for lot in lots))
            assert np.asarray((await alone.answer()).outputs[0]).tolist() == [21]
            first, second = ends.serving[0].model.together
            assert 0.0 < (first.timeout_s or 0.0) <= 1.0
            assert 50.0 < (second.timeout_s or 0.0) <= 60.0
            assert len(ends.serving[0].model.requests) == 1

    run(test)


def test_rows_of_a_caller_who_left_before_they_were_sent_do_not_travel() -> None:
    async def test() -> None:
        async with Ends(Model()) as ends:
            got: list[object] = []

            class Taker:
                def ran(self, tag: object, outputs: object, start: int, stop: int, queue_s: float) -> None:
                    got.append((tag, outputs[0][start:stop].tolist()))  # type: ignore[index]

                def ended(self, tag: object, answer: object) -> None:
                    got.append((tag, answer))

            rows = Rows(3, (np.arange(9, dtype=np.float32).reshape(3, 3),))
            terms = {"callers": [None, None], "timeout_s": None, "spent_s": 0.0}
            ends.model().predict_many(rows, [1, 1], [0, 2], tags=["a", "c"], taker=Taker(), **terms)  # type: ignore[arg-type]
            await until(lambda: len(got) == 2)
            assert got == [("a", [3]), ("c", [21])]
            (asked,) = ends.serving[0].model.together
            assert asked.rows.n == 2

    run(test)


def test_one_that_is_taken_back_leaves_the_others() -> None:
    async def test() -> None:
        async with Ends(Model(holds=True)) as ends:
            model = ends.model()
            lot = Lot(model, 1, 1, 1)
            model.take_back(lot.handles[1])  # not sent yet
            await until(lambda: ends.serving[0].model.together)
            (asked,) = ends.serving[0].model.together
            await until(lambda: asked.taken_back)
            model.take_back(lot.handles[2])
            await until(lambda: len(asked.taken_back) == 2)
            assert asked.taken_back == [asked.tags[1], asked.tags[2]]
            for tag in asked.taken_back:
                tag.done(Answer(error=Cancelled("taken back")))  # type: ignore[attr-defined]
            asked.taker.ran(asked.tags[0], [np.array([5], np.float32)], 0, 1, 0.0)
            await until(lambda: len(lot.results) == 3)
            ends_by_tag = dict(lot.results)
            assert ends_by_tag[0] == [5]
            assert isinstance(ends_by_tag[1], Cancelled)
            assert isinstance(ends_by_tag[2], Cancelled)

    run(test)


@pytest.mark.parametrize(
    ("refusal", "kind"), [(QueueFull("full", retry_after_s=1.0), QueueFull), (KeyError("bug"), RowwiseError)]
)
def test_a_lot_that_is_refused_ends_for_each_of_its_callers(refusal: Exception, kind: type[Exception]) -> None:
    async def test() -> None:
        async with Ends(Model(refusal=refusal), Model("good")) as ends:
            lot, good = Lot(ends.model(), 1, 2), Lot(ends.model("good"), 1, 1)
            await until(lambda: len(lot.results) == len(good.results) == 2)
            assert [(tag, type(error)) for tag, error in lot.results] == [(0, kind), (1, kind)]
            assert good.results == [(0, [0]), (1, [3])]

    run(test)


def test_outputs_that_are_not_as_declared_fail_all_of_the_batch_and_nobody_else() -> None:
    async def test() -> None:
        async with Ends(Model(holds=True)) as ends:
            lot = Lot(ends.model(), 1, 1)
            await until(lambda: ends.serving[0].model.together)
            ends.serving[0].model.together[0].finish([np.zeros((2, 2), np.float32)])
            await until(lambda: len(lot.results) == 2)
            assert all("total" in str(error) for _, error in lot.results)
            ends.serving[0].model.holds = False
            assert np.asarray((await ask(ends.model(), 1).answer()).outputs[0]).tolist() == [3]

    run(test)


def test_a_lot_fails_at_once_when_the_engine_process_ends() -> None:
    async def test() -> None:
        async with Ends(Model(holds=True)) as ends:
            lot = Lot(ends.model(), 1, 1)
            await until(lambda: ends.serving[0].model.together)
            model = ends.model()
            ends.engine_process.kill()
            await until(lambda: len(lot.results) == 2)
            assert all(isinstance(error, EngineGone) for _, error in lot.results)
            late = Lot(model, 1, 1)
            assert all(isinstance(error, EngineGone) for _, error in late.results)
            assert late.handles == [None, None]

    run(test)


def test_requests_of_differing_length_are_admitted_at_once_with_their_lengths() -> None:
    async def test() -> None:
        async with Ends(Model(signature=ECHO)) as ends:
            got: list[object] = []

            class Taker:
                def ran(self, tag: object, outputs: object, start: int, stop: int, queue_s: float) -> None:
                    got.append((tag, [row.tolist() for row in outputs[0][start:stop]]))  # type: ignore[index]

                def ended(self, tag: object, answer: object) -> None:
                    got.append((tag, answer))

            tokens = [np.arange(2 * n, dtype=np.int32).reshape(n, 2) for n in (1, 3)]
            rows = Rows(2, (tokens, np.array([b"a", b"b"], object)), [(1,), (3,)])
            terms = {"callers": [None, None], "timeout_s": None, "spent_s": 0.0}
            ends.model().predict_many(rows, [1, 1], [0, 1], tags=[0, 1], taker=Taker(), **terms)  # type: ignore[arg-type]
            await until(lambda: len(got) == 2)
            assert got == [(0, [tokens[0].tolist()]), (1, [tokens[1].tolist()])]
            (asked,) = ends.serving[0].model.together
            assert asked.rows.lengths == [(1,), (3,)]

    run(test)

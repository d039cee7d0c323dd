"""The link over a real socket: each request is answered once, by the engine that it was sent to or with an error."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from server.batching import Cancelled, DeadlineExceeded, ExampleFailed, QueueFull
from server.errors import RowwiseError
from server.link import worker_end
from server.link.connection import Connection
from server.link.errors import EngineGone
from server.protocol import Rows
from server.store.errors import ModelNotFound, ModelNotReady
from tests.link.ends import ECHO, Answer, Asked, Ends, Model, Serving, ask, run, until


def test_an_answer_is_what_the_model_answers_and_says_how_it_was_batched() -> None:
    async def test() -> None:
        async with Ends(Model()) as ends:
            answer = await ask(ends.model(), 1, 2).answer()
            assert answer.error is None
            assert np.asarray(answer.outputs[0]).tolist() == [3, 6]
            facts = (answer.batch_id, answer.bucket, answer.batch_rows, answer.compute_s, answer.reason)
            assert facts == (7, 8, 5, 0.5, "oldest")
            assert ends.waits == [("sum", 0.25)]

    run(test)


def test_strings_and_rows_of_differing_length_arrive_as_they_were_sent() -> None:
    async def test() -> None:
        async with Ends(Model(signature=ECHO)) as ends:
            tokens = [np.arange(2 * n, dtype=np.int32).reshape(n, 2) for n in (0, 3, 8)]
            text = np.array([b"", b"a\0", b"\xff" * 300], object)
            answer = await Asked(ends.model(), tokens, text, lengths=[(0,), (3,), (8,)]).answer()
            assert [row.tolist() for row in answer.outputs[0]] == [row.tolist() for row in tokens]
            assert np.asarray(answer.outputs[1]).tolist() == text.tolist()
            (request,) = ends.serving[0].model.requests
            assert request.rows.lengths == [(0,), (3,), (8,)]

    run(test)


def test_a_requests_priority_and_caller_arrive_with_it() -> None:
    async def test() -> None:
        async with Ends(Model()) as ends:
            done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            rows = Rows(1, (np.ones((1, 3), np.float32),))
            ends.model().predict(rows, timeout_s=None, on_done=done.set_result, caller="me", priority=1)
            await done
            await ask(ends.model(), 1).answer()
            told = [(request.caller, request.priority) for request in ends.serving[0].model.requests]
            assert told == [("me", 1), (None, None)]

    run(test)


def test_requests_of_one_tick_travel_in_one_message_and_so_do_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send = Connection.send

    def counting(self: Connection, frames: object) -> None:
        sent.append(1)
        send(self, frames)  # type: ignore[arg-type]

    async def test() -> None:
        async with Ends(Model(), Model("other")) as ends:
            monkeypatch.setattr(Connection, "send", counting)
            asked = [ask(ends.model(name), value) for value in range(50) for name in ("sum", "other")]
            for place, each in enumerate(asked):
                assert np.asarray((await each.answer()).outputs[0]).tolist() == [3 * (place // 2)]
            assert len(sent) == 2

    run(test)


def test_several_workers_get_each_their_own_answers() -> None:
    async def test() -> None:
        async with Ends(Model(), n_workers=3) as ends:
            asked = [(ask(ends.model(worker=n % 3), n), n) for n in range(300)]
            for each, n in asked:
                assert np.asarray((await each.answer()).outputs[0]).tolist() == [3 * n]

    run(test)


@pytest.mark.parametrize(
    ("error", "retry_after_s"),
    [(QueueFull("full", retry_after_s=2.5), 2.5), (ExampleFailed("row 3 is bad"), None), (RowwiseError("other"), None)],
)
def test_a_failure_keeps_its_class_its_sentence_and_when_to_try_again(
    error: RowwiseError, retry_after_s: float | None
) -> None:
    async def test() -> None:
        async with Ends(Model(refusal=error), Model("late", holds=True)) as ends:
            refused, late = ask(ends.model(), 1), ask(ends.model("late"), 1)
            await until(lambda: ends.serving[1].model.requests)
            ends.serving[1].model.requests[0].finish(Answer(error=error))
            for asked in (refused, late):
                answer = await asked.answer()
                assert type(answer.error) is type(error)
                assert str(answer.error) == str(error)
                assert getattr(answer.error, "retry_after_s", None) == retry_after_s

    run(test)


def test_a_bug_in_the_engine_fails_one_request_and_not_its_neighbours() -> None:
    async def test() -> None:
        async with Ends(Model(refusal=KeyError("bug")), Model("good")) as ends:
            bad, good = ask(ends.model(), 1), ask(ends.model("good"), 1)
            assert "internal error" in str((await bad.answer()).error)
            assert (await good.answer()).error is None

    run(test)


def test_an_output_that_is_not_as_the_signature_says_fails_alone() -> None:
    async def test() -> None:
        model = Model(holds=True)
        async with Ends(model) as ends:
            first, second = ask(ends.model(), 1), ask(ends.model(), 2)
            await until(lambda: len(model.requests) == 2)
            model.requests[0].finish(Answer(outputs=[np.zeros(1, np.float64)]))
            model.requests[1].finish()
            assert "float64" in str((await first.answer()).error)
            assert np.asarray((await second.answer()).outputs[0]).tolist() == [6]

    run(test)


def test_the_time_on_the_way_counts_against_the_deadline() -> None:
    async def test() -> None:
        async with Ends(Model()) as ends:
            began_s = time.monotonic()
            asked = Asked(ends.model(), np.zeros((1, 3), np.float32), timeout_s=60.0)
            asked_s = time.monotonic()
            time.sleep(0.05)  # noqa: ASYNC251 - the loop of both ends stands still
            slept_s = time.monotonic()
            await asked.answer()
            timeout_s = ends.serving[0].model.requests[0].timeout_s
            assert timeout_s is not None
            assert slept_s - asked_s <= 60.0 - timeout_s <= time.monotonic() - began_s

    run(test)


def test_the_engine_knows_whose_each_request_is() -> None:
    async def test() -> None:
        async with Ends(Model()) as ends:
            rows = Rows(1, (np.zeros((1, 3), np.float32),))
            answers: list[object] = []
            for caller in ("127.0.0.1", None, "::1"):
                ends.model().predict(rows, timeout_s=5, on_done=answers.append, caller=caller)
            await until(lambda: len(answers) == 3)
            assert [request.caller for request in ends.serving[0].model.requests] == ["127.0.0.1", None, "::1"]

    run(test)


def test_a_caller_that_leaves_before_its_rows_are_sent_costs_the_engine_nothing() -> None:
    async def test() -> None:
        async with Ends(Model()) as ends:
            left, stays = ask(ends.model(), 1), ask(ends.model(), 2)
            assert left.ticket.cancel()
            assert isinstance(left.error, Cancelled)
            assert not left.ticket.cancel()
            await stays.answer()
            assert len(ends.serving[0].model.requests) == 1

    run(test)


def test_a_caller_that_leaves_later_is_taken_back_in_the_engine() -> None:
    async def test() -> None:
        model = Model(holds=True)
        async with Ends(model) as ends:
            asked, other = ask(ends.model(), 1), ask(ends.model(), 2)
            await until(lambda: len(model.requests) == 2)
            assert asked.ticket.cancel()
            await until(lambda: model.requests[0].cancelled)
            assert not model.requests[1].cancelled
            model.requests[0].finish(Answer(error=Cancelled("gone")))
            model.requests[1].finish()
            assert isinstance((await asked.answer()).error, Cancelled)
            assert (await other.answer()).error is None

    run(test)


def test_requests_of_a_worker_that_was_killed_are_taken_back() -> None:
    async def test() -> None:
        model = Model(holds=True)
        async with Ends(model, n_workers=2) as ends:
            ask(ends.model(worker=0), 1)
            kept = ask(ends.model(worker=1), 2)
            await until(lambda: len(model.requests) == 2)
            ends.worker_processes[0].kill()
            await until(lambda: any(request.cancelled for request in model.requests))
            dead, alive = sorted(model.requests, key=lambda request: not request.cancelled)
            assert not alive.cancelled
            dead.finish()
            alive.finish()
            assert np.asarray((await kept.answer()).outputs[0]).tolist() == [6]

    run(test)


def test_when_the_engine_is_killed_everything_that_waits_fails_at_once_and_the_next_engine_gets_none_of_it() -> None:
    async def test() -> None:
        model = Model(holds=True)
        async with Ends(model) as ends:
            remote = ends.model()
            asked = [ask(remote, n) for n in range(3)]
            await until(lambda: len(model.requests) == 3)
            ends.engine.close()
            # Sent to nobody, and not to be kept for whoever listens next.
            unsent = ask(remote, 9)
            await asyncio.sleep(0)
            ends.engine_process.kill()
            for each in (*asked, unsent):
                answer = await each.answer()
                assert isinstance(answer.error, EngineGone)
                assert answer.error.retry_after_s >= 1
            assert ends.worker.missing is not None
            with pytest.raises(EngineGone):
                ask(remote, 1)
            assert not ends.worker.catalog.serves("sum", version=None, label=None)

            fresh = Model()
            ends.serving = [Serving(fresh)]
            ends.engine = ends.new_engine(ends.worker_processes[0].pid)
            await ends.engine.start()
            await until(lambda: ends.worker.missing is None)
            assert np.asarray((await ask(ends.model(), 4).answer()).outputs[0]).tolist() == [12]
            assert [request.rows.columns[0][0][0] for request in fresh.requests] == [4]

    run(test)


def test_a_worker_may_be_there_before_the_engine() -> None:
    async def test() -> None:
        async with Ends(Model(), engine_starts=False) as ends:
            await asyncio.sleep(0.05)
            assert ends.worker.missing is not None
            await ends.engine.start()
            await until(lambda: ends.worker.missing is None)
            assert (await ask(ends.model(), 1).answer()).error is None

    run(test)


def test_an_announced_switch_fails_nothing_and_is_over_when_every_worker_goes_by_it() -> None:
    async def test() -> None:
        old, new = Model(version=1), Model(version=2)
        async with Ends(old, n_workers=2) as ends:
            before = [ask(ends.model(worker=worker), 1) for worker in (0, 1)]
            ends.serving = [Serving(new, labels=("stable",))]
            await ends.engine.announce()
            # All that was asked by the old table has come: the old version may go.
            assert len(old.requests) == 2
            old.refusal = AssertionError("asked after it was unloaded")
            for worker in (0, 1):
                assert ends.workers[worker].catalog.serves("sum", version="2", label=None)
                assert ends.workers[worker].catalog.serves("sum", version=None, label="stable")
                assert not ends.workers[worker].catalog.serves("sum", version="1", label=None)
                assert not ends.workers[worker].catalog.serves("sum", version=None, label="other")
            after = [ask(ends.model(worker=worker), 1) for worker in (0, 1)]
            for each in (*before, *after):
                assert (await each.answer()).error is None
            assert len(new.requests) == 2

    run(test)


def test_a_model_that_goes_on_serving_stays_the_same_object_and_one_that_left_is_forgotten() -> None:
    async def test() -> None:
        async with Ends(Model(), Model("other")) as ends:
            model = ends.model()
            ends.serving = ends.serving[:1]
            await ends.engine.announce()
            assert ends.model() is model
            assert len(ends.engine._targets) == 1
            with pytest.raises(ModelNotReady):
                ends.model("other")
            with pytest.raises(ModelNotFound):
                ends.worker.catalog.versions("other")

    run(test)


def test_a_worker_that_has_ended_does_not_hold_up_a_switch() -> None:
    async def test() -> None:
        async with Ends(Model(), n_workers=2) as ends:
            transport = ends.workers[1]._connection._transport
            transport.pause_reading()
            announcing = asyncio.ensure_future(ends.engine.announce())
            await asyncio.sleep(0.05)
            assert not announcing.done()
            ends.worker_processes[1].kill()
            async with asyncio.timeout(60):
                await announcing

    run(test)


def test_an_engine_that_hangs_is_given_up_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_end, "_SWEEP_S", 0.02)
    monkeypatch.setattr(worker_end, "_OVERDUE_S", 0.02)

    async def test() -> None:
        model = Model(holds=True)
        async with Ends(model) as ends:
            asked = Asked(ends.model(), np.zeros((1, 3), np.float32), timeout_s=0.05)
            assert isinstance((await asked.answer()).error, DeadlineExceeded)
            # The answer that comes after all is nobody's.
            model.requests[0].finish()
            await asyncio.sleep(0.05)
            assert len(asked.answers) == 1
            assert not ends.worker._waiting

    run(test)

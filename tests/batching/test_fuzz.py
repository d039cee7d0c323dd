"""A short run of ``make fuzz``, and that it finds what is broken: a check that can't fail is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from server.batching import Batch, Batcher, Group, Item
from tests.fuzz.account import Violation
from tests.fuzz.core_run import run
from tests.fuzz.program import Program, draw
from tests.fuzz.shrink import shrink
from tests.fuzz.tally import Tally, run_seed

N_MOVES = 500


def test_random_requests_faults_and_switches_break_no_promise() -> None:
    total = Tally()
    for seed in range(12):
        total.add(run_seed("core", seed, N_MOVES))
    assert total.broken == []
    # It was not a quiet run: everything that can happen did.
    ends = {"answered", "Cancelled", "DeadlineExceeded", "ExampleFailed", "ExecutionFailed", "refused: QueueFull"}
    assert ends <= total.ends.keys()
    assert total.n_rows_right > 500


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run(draw(3, 200)), run(draw(3, 200))
    assert first.account.ends == second.account.ends
    assert first.time.now_s == second.time.now_s
    assert draw(3, 200) != draw(4, 200)


class LosesItems(Batcher):
    def submit(self, item: Item) -> None:
        if item.payload.number % 50:  # type: ignore[attr-defined]
            super().submit(item)


class AnswersTwice(Batcher):
    def submit(self, item: Item) -> None:
        once, n = item.on_done, item.payload.number  # type: ignore[attr-defined]
        if n % 50 == 0:
            item.on_done = lambda done: (once(done), once(done))[0]
        super().submit(item)


class MixesGroups(Batcher):
    seen: Group | None = None

    def submit(self, item: Item) -> None:
        super().submit(item)
        if item.payload.number % 50 == 0 and self.seen is not None:  # type: ignore[attr-defined]
            item.group, item.payload.key = self.seen, self.seen.key  # type: ignore[attr-defined]
        type(self).seen = item.group


class ForgetsCancels(Batcher):
    def cancel(self, item: Item) -> bool:
        return item.payload.number % 2 == 0 and super().cancel(item)  # type: ignore[attr-defined]


class TurnsOutputs(Batcher):
    def finished(self, batch: Batch, outputs: Any, error: BaseException | None) -> None:
        if isinstance(outputs, list) and batch.id % 10 == 0:
            outputs = outputs[1:] + outputs[:1]
        super().finished(batch, outputs, error)


class LeaksQuota(Batcher):
    def cancel(self, item: Item) -> bool:
        taken = super().cancel(item)
        if taken and item.group.quota is not None:
            item.group.quota.n_rows += 1
        return taken


class Sleeps(Batcher):
    def poll(self) -> None:
        if self.n_running or self.n_waiting < 5:
            super().poll()


class LooksAtAnOldClock(Batcher):
    def __init__(self, *, clock: Callable[[], float], **options: Any) -> None:
        super().__init__(clock=lambda: clock() - 2.0, **options)


class NeverSaysIdle(Batcher):
    def close_group(self, group: Group, *arguments: Any, **options: Any) -> None:
        super().close_group(group, *arguments, **{**options, "on_idle": None})


class BlamesEverybody(Batcher):
    def finished(self, batch: Batch, outputs: object, error: BaseException | None) -> None:
        errors = getattr(error, "errors", None)
        if errors:
            errors.update(dict.fromkeys(range(batch.n_rows), next(iter(errors.values()))))
        super().finished(batch, outputs, error)


BROKEN = (
    AnswersTwice,
    BlamesEverybody,
    ForgetsCancels,
    LeaksQuota,
    LooksAtAnOldClock,
    LosesItems,
    MixesGroups,
    NeverSaysIdle,
    Sleeps,
    TurnsOutputs,
)


def breaks(batcher: type[Batcher], seed: int) -> str:
    try:
        run(draw(seed, N_MOVES), batcher)
    except Exception as error:  # noqa: BLE001 - whatever a broken batcher does
        return str(error)
    return ""


@pytest.mark.parametrize("batcher", BROKEN, ids=lambda batcher: batcher.__name__)
def test_a_batcher_that_is_broken_is_found_out(batcher: type[Batcher]) -> None:
    assert any(breaks(batcher, seed) for seed in range(20))


def test_a_failing_program_is_made_small_and_still_fails() -> None:
    seed = next(seed for seed in range(20) if breaks(ForgetsCancels, seed))
    program = draw(seed, N_MOVES)

    def fails(candidate: Program) -> bool:
        try:
            run(candidate, ForgetsCancels)
        except Violation:
            return True
        return False

    small = shrink(program, fails)
    assert fails(small)
    assert len(small.moves) < 20
    assert small == replace(program, moves=small.moves)

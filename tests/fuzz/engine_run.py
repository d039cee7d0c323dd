"""One run through serving and the engine's staging: requests' bytes go in, and the same request's answer comes out.

What is real: ``ServedModel``, the batcher, ``GroupRunner`` with its search for bad rows, ``Staging``, ``Answers``. What
is not: time, the engine's thread, and the graphs, which are NumPy. The oracle computes every row alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from server.batching import (
    Batch,
    Batcher,
    Cancelled,
    DeadlineExceeded,
    Draining,
    ExampleFailed,
    ExecutionFailed,
    Group,
    ModelUnloaded,
    QueueFull,
    QueueLimits,
    QueueTimeout,
    Quota,
    Share,
    TooManyRows,
)
from server.engine.executor import _executed
from server.protocol import Rows
from server.serving import Answer, ServedModel, Ticket
from tests.fuzz.account import Account, Violation
from tests.fuzz.array_models import FIXED, VARIABLE, expected_row, make_rows, runner
from tests.fuzz.executor import VirtualExecutor
from tests.fuzz.hunger import Hunger
from tests.fuzz.program import COST_CURVES, Move, Program, Setting
from tests.fuzz.tables import scaled, table
from tests.fuzz.virtual_time import VirtualTime

__all__ = ["EngineRun", "run"]

#: Requests have so many times the rows that they have in the core's runs, and queues hold as much more: rows are what
#: is checked here.
_ROWS = 6
_REFUSALS = (QueueFull, TooManyRows, DeadlineExceeded, Draining, ModelUnloaded)
_LATE = (DeadlineExceeded, QueueTimeout)


class Asked:
    """A request that was admitted."""

    __slots__ = ("has_deadline", "left", "model", "number", "poison", "rows", "signature", "ticket")

    def __init__(
        self, number: int, model: ServedModel, rows: Rows, poison: tuple[int, ...], *, has_deadline: bool
    ) -> None:
        self.number = number
        self.model = model
        self.signature = model.signature
        self.rows = rows
        self.poison = poison
        self.has_deadline = has_deadline
        self.ticket: Ticket | None = None
        self.left = False


class EngineRun:
    """The state of one run."""

    def __init__(self, setting: Setting) -> None:
        import tensorflow as tf

        self._refuse = lambda sentence: tf.errors.InvalidArgumentError(None, None, sentence)
        self.setting = setting
        self.time = VirtualTime(late_s=setting.late_s)
        self.account = Account(self.time)
        self.executor = VirtualExecutor(
            self.time, self, lanes=setting.lanes, inline_s=setting.inline_s, seed=setting.noise_seed
        )
        self.batcher = Batcher(
            clock=self.time,
            executor=self.executor,
            defer=self.time.defer,
            limits=QueueLimits(max_rows=_ROWS * setting.max_rows),
        )
        self.executor.batcher = self.batcher
        self.time.drive(self.batcher.next_wakeup_s, self.batcher.expire)
        self.hunger = Hunger(self.account, self.time, lanes=setting.lanes, within_s=5e-3)
        self.runners: dict[Group, Any] = {}
        self.shares = [Share() for _ in setting.curves]
        self.versions = [0 for _ in setting.curves]
        self.models: list[ServedModel] = []
        self.groups: dict[ServedModel, list[Group]] = {}
        #: What is not answered, in order.
        self.live: dict[Asked, None] = {}
        self.n_asked = 0
        self.n_faults = 0
        self.was_unloaded = self.is_draining = False
        self.models = [self._load(number) for number in range(len(setting.curves))]

    def starts(self, batch: Batch) -> float:
        return batch.predicted_s

    def executes(self, batch: Batch, fault: BaseException | None) -> tuple[object, BaseException | None]:
        if fault is not None:
            return None, fault
        return _executed(batch, self.runners[batch.group.home or batch.group])

    def move(self, move: Move) -> None:
        kind, *arguments = move
        if kind == "ask":
            self._ask(*arguments)
        elif kind == "pass":
            self.time.advance(arguments[0])
        elif kind == "tick":
            self.time.end_tick()
        elif kind == "leave":
            self._leave(arguments[0])
        elif kind == "fault":
            self.n_faults += 1
            self.executor.faults.append(arguments[0])
        elif kind in ("switch", "unload"):
            self._replace(*arguments)
        if self.account.wrong:
            raise Violation("; ".join(self.account.wrong[:3]))

    def _ask(
        self, number: int, n_rows: int, allowed_s: float | None, _priority: int, poison: tuple[int, ...], then: str
    ) -> None:
        self.n_asked += 1
        n_rows *= _ROWS
        model = self.models[number % len(self.models)]
        rows = make_rows(model.signature, self.n_asked, n_rows, poison)
        asked = Asked(self.n_asked, model, rows, poison, has_deadline=allowed_s is not None)
        try:
            asked.ticket = model.predict(rows, timeout_s=allowed_s, on_done=partial(self._done, asked))
        except _REFUSALS as error:
            self.account.count(f"refused: {type(error).__name__}")
            return
        self.live[asked] = None
        if then == "leave":
            self._leave(number)

    def _leave(self, number: int) -> None:
        if self.live:
            asked = list(self.live)[number % len(self.live)]
            asked.left = True
            assert asked.ticket is not None
            asked.ticket.cancel()

    def _done(self, asked: Asked, answer: Answer) -> None:
        note, error = self.account.note, answer.error
        note(self.live.pop(asked, asked) is None, f"request {asked.number} is answered twice, or was not admitted")
        self.account.count("answered" if error is None else type(error).__name__)
        if error is not None:
            is_fit = (
                (isinstance(error, ExampleFailed) and asked.poison)
                or (isinstance(error, ExecutionFailed) and self.n_faults)
                or (isinstance(error, Cancelled) and asked.left)
                or (isinstance(error, _LATE) and asked.has_deadline)
                or (isinstance(error, ModelUnloaded) and self.was_unloaded)
            )
            note(is_fit, f"request {asked.number} got {error!r}")
            return
        note(not asked.poison, f"request {asked.number} has bad rows and got a result")
        for row in range(asked.rows.n):
            expected = expected_row(asked.signature, asked.rows, row)
            got = [column[row] for column in answer.outputs]
            if len(got) != len(expected) or not all(map(_same, got, expected)):
                note(False, f"row {row} of request {asked.number} got {got}, expected {expected}")
        self.account.n_rows_right += asked.rows.n

    def _replace(self, number: int, fails: bool = False) -> None:  # noqa: FBT001, FBT002 - a move's arguments
        number %= len(self.models)
        old = self.models[number]
        self.models[number] = self._load(number)
        self.was_unloaded |= fails
        for group in self.groups.pop(old):
            error = ModelUnloaded("the model is gone") if fails else None
            self.batcher.close_group(group, error, on_idle=partial(self.runners.pop, group))

    def _load(self, number: int) -> ServedModel:
        self.versions[number] += 1
        signature = VARIABLE if number % 2 else FIXED
        costs_s = scaled(COST_CURVES[self.setting.curves[number][0]], self.setting.scale_s)
        # A model's rows of all lengths share one queue's bound and one share of the executor's time.
        quota, groups = Quota(_ROWS * self.setting.max_rows), {}
        for lengths in [(size,) for size in signature.axes[0].buckets] if signature.axes else [()]:
            key = (number, self.versions[number], lengths)
            groups[lengths] = group = Group(key, table(costs_s), quota=quota, share=self.shares[number])
            self.runners[group] = runner(signature, lengths, costs_s, self._refuse)
        model = ServedModel(
            f"model {number}",
            self.versions[number],
            signature,
            groups,
            batcher=self.batcher,
            clock=self.time,
            default_timeout_s=1e6,
        )
        self.groups[model] = list(groups.values())
        return model

    def finish(self) -> None:
        """Let everything end and see that nothing is left. Raises Violation."""
        note = self.account.note
        self.is_draining = True
        self.batcher.drain()
        self.time.run_out()
        note(not self.live, f"{len(self.live)} requests were not answered")
        note(self.batcher.n_waiting == self.batcher.n_running == 0, "rows are left")
        serving = {group for groups in self.groups.values() for group in groups}
        note(self.runners.keys() == serving, "a version that was closed was not given back")
        if self.account.wrong:
            raise Violation("; ".join(self.account.wrong[:3]))


def run(program: Program) -> EngineRun:
    """Carry out a program and return what came of it. Raises Violation."""
    state = EngineRun(program.setting)
    for move in program.moves:
        state.move(move)
    state.finish()
    return state


def _same(got: Any, expected: np.ndarray[Any, Any]) -> bool:
    got = np.asarray(got, dtype=expected.dtype if expected.dtype == object else None)
    return got.dtype == expected.dtype and got.shape == expected.shape and bool(np.all(got == expected))

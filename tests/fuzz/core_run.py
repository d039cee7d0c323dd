"""One run of the core: a program's moves around a real batcher, with everything that it promises checked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial

from server.batching import (
    Batch,
    Batcher,
    CostDrift,
    CostTable,
    DeadlineExceeded,
    Draining,
    ExampleFailed,
    Group,
    Item,
    ModelUnloaded,
    QueueFull,
    QueueLimits,
    Quota,
    RowErrors,
    Share,
    TooManyRows,
    isolate,
    runs_of_slice,
)
from server.batching.plan import Policy
from tests.fuzz.account import RAN, WAITS, Account, Request, Violation, answer_to
from tests.fuzz.executor import VirtualExecutor
from tests.fuzz.hunger import Hunger
from tests.fuzz.program import COST_CURVES, Move, Program, Setting
from tests.fuzz.tables import scaled, table
from tests.fuzz.virtual_time import VirtualTime

__all__ = ["CoreRun", "run"]

#: Moves between two comparisons of the accounts, which look at every waiting request.
_COMPARE_EVERY = 32


class CallerFault(Exception):
    """What a caller's own callback raises."""


class Model:
    """A name that versions are served under, with what they have in common."""

    def __init__(self, number: int, tables: Sequence[dict[int, float]]) -> None:
        self.number = number
        self.tables = tables
        self.share = Share()
        self.version = 0
        self.pace = 1.0
        self.groups: list[Group] = []


class CoreRun:
    """The state of one run. ``make_batcher``: what is tested, so that tests of this may test something broken."""

    def __init__(self, setting: Setting, make_batcher: Callable[..., Batcher] = Batcher) -> None:
        self.setting = setting
        self.time = VirtualTime(late_s=setting.late_s)
        self.account = Account(self.time)
        self.executor = VirtualExecutor(
            self.time, self, lanes=setting.lanes, inline_s=setting.inline_s, seed=setting.noise_seed
        )
        # Half of the programs let batches wait for callers who return, some of whom do.
        self.returning_s = setting.noise_seed % 2 * 8 * setting.scale_s
        policy = Policy(returning_s=self.returning_s)
        self.batcher = make_batcher(
            clock=self.time,
            executor=self.executor,
            defer=self.time.defer,
            limits=QueueLimits(max_rows=setting.max_rows),
            policy=policy,
        )
        self.executor.batcher = self.batcher
        self.time.drive(self.batcher.next_wakeup_s, self.batcher.expire)
        self.hunger = Hunger(
            self.account, self.time, lanes=setting.lanes, within_s=policy.fair_within_s + policy.returning_s
        )
        self.models = [
            Model(number, [scaled(COST_CURVES[curve], setting.scale_s) for curve in curves])
            for number, curves in enumerate(setting.curves)
        ]
        self.groups: list[Group] = []
        self.closed: list[Group] = []
        self.is_draining = False
        self.n_drained = 0
        self.n_requests = 0
        self._moves: dict[str, Callable[..., None]] = {
            "ask": self._ask,
            "drain": self._drain,
            "fault": self.executor.faults.append,
            "leave": self._leave,
            "look": self._look,
            "pace": self._pace,
            "pass": self._pass,
            "switch": self._switch,
            "tick": self._tick,
            "unload": self._unload,
        }
        for model in self.models:
            self._load(model)

    # What the executor asks.

    def starts(self, batch: Batch) -> float:
        n_bad = self.account.starts(batch)
        n_runs = 1 + n_bad * batch.n_rows.bit_length()
        model = self.models[batch.group.key[0]]  # type: ignore[index]
        return self.hunger.served(batch, model.tables[batch.group.key[2]][batch.bucket] * model.pace * n_runs)  # type: ignore[index]

    def executes(self, batch: Batch, fault: BaseException | None) -> tuple[object, BaseException | None]:
        if fault is not None:
            self.account.failed(batch)
            return None, fault
        rows = [(item.payload, row) for item, start, stop in batch.spans for row in range(start, stop)]
        outputs, error = _executed(rows, batch.group.key, self.account)
        for place, (request, row) in enumerate(rows):
            is_open = error is not None and place in error.unsettled
            request.rows[row] = WAITS if is_open else RAN
        return outputs, error

    # Moves.

    def move(self, move: Move) -> None:
        kind, *arguments = move
        self._moves[kind](*arguments)
        if self.account.wrong:
            raise Violation("; ".join(self.account.wrong[:3]))

    def _ask(
        self, number: int, n_rows: int, allowed_s: float | None, priority: int, poison: tuple[int, ...], then: str
    ) -> None:
        model = self.models[number % len(self.models)]
        group = model.groups[number // 7 % len(model.groups)]
        if number % 50 == 0 and self.closed:
            # A caller that has held on to a version for too long.
            group = self.closed[number // 50 % len(self.closed)]
        now_s = self.time.now_s
        deadline_s = None if allowed_s is None else now_s + allowed_s
        self.n_requests += 1
        request = Request(self.n_requests, group.key, n_rows, poison=poison, deadline_s=deadline_s, then=then)
        request.item = item = Item(
            group,
            n_rows,
            request,
            arrived_s=now_s,
            deadline_s=deadline_s,
            on_done=self._done,
            caller=number % 5 or None,
            priority=priority,
            tag=request if number % 3 else None,
        )
        if number % 5:
            group.returning.came(n_rows)
        full = group.quota is not None and group.quota.n_rows + n_rows > group.quota.max_rows
        try:
            self.batcher.submit(item)
        except (QueueFull, TooManyRows, DeadlineExceeded, Draining, ModelUnloaded) as error:
            self._refused(request, error, full=full)
            return
        note = self.account.note
        note(not full, f"{request} was admitted to a full queue")
        note(not self.is_draining and group.key not in self.account.closed, f"{request} was admitted to what is closed")
        self.account.admitted(request)
        self.hunger.waits(item.group, n_rows)

    def _refused(self, request: Request, error: Exception, *, full: bool) -> None:
        self.account.count(f"refused: {type(error).__name__}")
        reasons = {
            QueueFull: full or request.deadline_s is not None,
            TooManyRows: request.n_rows > self.setting.max_rows,
            DeadlineExceeded: request.deadline_s is not None,
            Draining: self.is_draining,
            ModelUnloaded: request.key in self.account.closed,
        }
        self.account.note(reasons[type(error)], f"{request} was refused without a reason: {error}")

    def _done(self, item: Item) -> None:
        request: Request = item.payload  # type: ignore[assignment]
        self.account.done(request, item, item.group.costs)
        if request.then == "raise":
            raise CallerFault("a caller's callback failed")
        if request.then == "ask" and self.n_requests % 4:
            self._ask(request.number * 31, 1, None, 5, (), "")
        if request.then == "leave":
            self._leave(request.number)

    def _leave(self, number: int) -> None:
        live = list(self.account.live)
        if not live:
            return
        request = live[number % len(live)]
        assert request.item is not None
        # Inside of a callback others may have ended already whose callbacks come next.
        waits = WAITS in request.rows and not request.item.is_done
        request.left = True
        taken = self.batcher.cancel(request.item)
        self.account.note(taken == waits, f"cancelling {request} said {taken}, and rows of it wait: {waits}")
        self.account.note(request.ended == taken, f"{request} was cancelled, and answered: {request.ended}")
        request.left = taken

    def _pass(self, seconds: float) -> None:
        self.time.advance(seconds)
        self._busy()

    def _tick(self) -> None:
        self.time.end_tick()
        self._busy()

    def _busy(self) -> None:
        if self.executor.free() and self.batcher.n_waiting:
            # None may, but for callers who are about to return, and not for longer than is allowed.
            wakeup_s = self.batcher.next_wakeup_s()
            waits = self.returning_s > 0 and wakeup_s is not None and wakeup_s <= self.time.now_s + self.returning_s
            self.account.note(waits, "an executor idles while rows wait")

    def _switch(self, number: int) -> None:
        """A new version in the place of the old one, whose requests are finished by it."""
        model = self.models[number % len(self.models)]
        old = model.groups
        self._load(model)
        self._close(old, fails=False)

    def _unload(self, number: int, fails: bool) -> None:  # noqa: FBT001 - a move's arguments
        """A model goes, and is registered again under its name: it begins with nothing."""
        model = self.models[number % len(self.models)]
        old, model.share = model.groups, Share()
        self._load(model)
        self._close(old, fails=fails)

    def _pace(self, number: int, pace: float) -> None:
        self.models[number % len(self.models)].pace = pace

    def _look(self) -> None:
        self.batcher.poll()
        self.batcher.expire()

    def _drain(self) -> None:
        self.is_draining = True
        self.batcher.drain(self._drained)

    # How it is done.

    def _drained(self) -> None:
        self.n_drained += 1
        self.account.note(not self.account.live, f"drained with {len(self.account.live)} requests unanswered")

    def _load(self, model: Model) -> None:
        model.version += 1
        quota = Quota(self.setting.max_rows)
        model.groups = [
            Group((model.number, model.version, shape), table(costs_s), quota=quota, share=model.share)
            for shape, costs_s in enumerate(model.tables)
        ]
        for group in model.groups:
            group.drift = CostDrift(group.costs.by_bucket, partial(self._costs_change, group))
        self.groups += model.groups

    def _close(self, groups: Iterable[Group], *, fails: bool) -> None:
        for group in groups:
            self.account.closed[group.key] = fails
            error = ModelUnloaded("the model is gone") if fails else None
            self.batcher.close_group(group, error, on_idle=partial(self.account.idles, group.key))
            self.closed.append(group)

    def _costs_change(self, group: Group, costs_s: dict[int, float]) -> None:
        """Costs are worked out beside the event loop, and come later."""
        self.time.after(10.0 * self.setting.scale_s, lambda: self.batcher.recost(group, CostTable(costs_s)))

    def compare(self) -> None:
        """Compare the batcher's account with ours. Raises Violation."""
        waiting, note = self.account.waiting(), self.account.note
        n_waiting = sum(waiting.values())
        note(self.batcher.n_waiting == n_waiting, f"{n_waiting} rows wait, the batcher says {self.batcher.n_waiting}")
        note(self.batcher.n_running == self.executor.n_running, "the batcher's number of running batches is wrong")
        by_quota: dict[int, int] = {}
        for group in self.groups:
            held = waiting.get(group.key, 0)
            note(sum(part.n_rows for part in _with_apart(group)) == held, f"{held} rows of {group.key} wait")
            by_quota[id(group.quota)] = by_quota.get(id(group.quota), 0) + held
        for group in self.groups:
            assert group.quota is not None
            note(group.quota.n_rows == by_quota[id(group.quota)], f"the quota of {group.key} is off")
        note((self.batcher.backlog_s > 0) == (n_waiting > 0), f"{self.batcher.backlog_s} s of work, {n_waiting} rows")
        self.groups = [group for group in self.groups if group.key not in self.account.idle]
        if self.account.wrong:
            raise Violation("; ".join(self.account.wrong[:3]))

    def finish(self) -> None:
        """Drain, let everything end, and see that nothing is left anywhere. Raises Violation."""
        note, account = self.account.note, self.account
        self._drain()
        groups = [*self.groups, *(group for model in self.models for group in model.groups)]
        self.time.run_out()
        note(self.n_drained, "nobody was told that the batcher has drained")
        note(account.is_empty(groups), f"left over: {list(account.live)[:3]} or counters that are not 0")
        note(self.batcher.backlog_s == 0, f"{self.batcher.backlog_s} s of work are left")
        note(self.batcher.next_wakeup_s() is None, "the batcher wants to be woken for nothing")
        missing = account.closed.keys() - account.idle
        note(not missing, f"nobody was told that {missing} are idle")
        self.compare()


class _Log(logging.Handler):
    """What the core logs is a fault that it has caught: only a caller's own may be there."""

    def __init__(self, account: Account) -> None:
        super().__init__()
        self._account = account

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, CallerFault):
            self._account.note(False, f"the core logged: {record.getMessage()}: {error!r}")


def run(program: Program, make_batcher: Callable[..., Batcher] = Batcher) -> CoreRun:
    """Carry out a program and return what came of it. Raises Violation, or what the core raised where it should not."""
    state = CoreRun(program.setting, make_batcher)
    log = logging.getLogger("server.batching")
    handler, propagates = _Log(state.account), log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        for number, move in enumerate(program.moves):
            if number == program.setting.drain_at:
                state.move(("drain",))
            state.move(move)
            if number % _COMPARE_EVERY == 0:
                state.compare()
        state.finish()
    finally:
        log.removeHandler(handler)
        log.propagate = propagates
    return state


def _executed(
    rows: Sequence[tuple[Request, int]], key: Hashable, account: Account
) -> tuple[list[object], RowErrors | None]:
    """Do what the engine does with a batch: run it, and if a row is refused find which."""
    outputs: list[object] = [None] * len(rows)
    n_runs = 0

    def attempt(places: Sequence[int]) -> None:
        nonlocal n_runs
        n_runs += 1
        bad = next((place for place in places if rows[place][1] in rows[place][0].poison), None)
        if bad is not None:
            raise ExampleFailed(f"row {rows[bad][1]} of {rows[bad][0]}")
        for place in places:
            request, row = rows[place]
            outputs[place] = answer_to(request.value(row), key)

    everything = range(len(rows))
    try:
        attempt(everything)
    except ExampleFailed as failure:
        found = isolate(everything, failure, attempt, max_runs=runs_of_slice(len(rows)))
        settled = set(everything) - set(found.unsettled)
        bad = {place for place in settled if rows[place][1] in rows[place][0].poison}
        account.note(found.errors.keys() == bad, f"{sorted(bad)} are bad, found were {sorted(found.errors)}")
        most = len(bad) * ((len(rows) - 1).bit_length() + 1) + 2
        account.note(n_runs - 1 <= most, f"{n_runs - 1} runs to find {len(bad)} of {len(rows)}, {most} allowed")
        return outputs, RowErrors(found.errors, found.unsettled)
    return outputs, None


def _with_apart(group: Group) -> list[Group]:
    """Return a group, and the one in which rows of it wait apart."""
    return [group] if group.quarantine is None else [group, group.quarantine.group]

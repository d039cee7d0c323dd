"""More requests than can be served: what is answered, what is refused, and what memory it takes, in virtual time.

The batcher is the real one. Its executor takes the measured cost of each bucket, and up to a third more or less.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from server.batching import Batch, Batcher, BatchingError, CostTable, Group, Item, QueueLimits
from tests.batching.doubles import ManualClock

#: Seconds. A model with a fixed cost, that batches well, and one whose cost is its rows'.
FIXED = {1: 16e-3, 8: 20e-3, 32: 32e-3, 64: 48e-3}
LINEAR = {1: 1e-3, 8: 7e-3, 32: 26e-3, 64: 52e-3}
SEED = 20_261


class VirtualTime:
    """Events in order of their time."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, time_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._numbers), event))

    def run(self, until_s: float) -> None:
        while self._events and self._events[0][0] <= until_s:
            time_s, _, event = heapq.heappop(self._events)
            self.clock.now_s = max(self.clock.now_s, time_s)
            event()


class NoisyExecutor:
    """Runs one batch at a time, each for about its cost."""

    def __init__(self, time: VirtualTime, rng: random.Random) -> None:
        self.batcher: Batcher
        self.is_free = True
        self.executed: list[tuple[Item, float]] = []
        self._time = time
        self._rng = rng

    def free(self) -> int:
        return int(self.is_free)

    def start(self, batch: Batch) -> None:
        self.is_free = False
        now_s = self._time.clock()
        self.executed += [(item, now_s) for item, _, _ in batch.spans]
        took_s = batch.predicted_s * self._rng.choice((0.8, 0.9, 1.0, 1.0, 1.05, 1.3))

        def end() -> None:
            self.is_free = True
            self.batcher.finished(batch, None, None)

        self._time.at(now_s + took_s, end)


@dataclass
class Account:
    """What became of requests."""

    n_sent: int = 0
    n_refused: int = 0
    n_admitted: int = 0
    n_late: int = 0
    answered_s: list[float] = field(default_factory=list)
    most_waiting: int = 0

    def rate(self, from_s: float, to_s: float) -> float:
        return sum(from_s <= answered_s < to_s for answered_s in self.answered_s) / (to_s - from_s)

    @property
    def missed(self) -> float:
        return self.n_late / max(1, self.n_admitted)


class Server:
    """A batcher in virtual time, with callers who may try again."""

    def __init__(self, costs: dict[int, float], *, max_rows: int = 4_096) -> None:
        self.clock = ManualClock(0.0)
        self.time = VirtualTime(self.clock)
        self.rng = random.Random(SEED)
        self.executor = NoisyExecutor(self.time, self.rng)
        self.batcher = Batcher(
            clock=self.clock,
            executor=self.executor,
            defer=lambda poll: self.time.at(self.clock(), poll),
            limits=QueueLimits(max_rows=max_rows),
        )
        self.executor.batcher = self.batcher
        self.group = Group("model", CostTable(costs).prepare())
        self.capacity = 1 / self.group.costs.row_s
        self.account = Account()
        self._alarm()

    def _alarm(self) -> None:
        self.batcher.expire()
        self.time.at(self.clock() + 1e-3, self._alarm)

    def send(
        self, timeout_s: float, *, retry: Callable[[BatchingError | None], None] = lambda error: None
    ) -> Item | None:
        """Send one row. ``retry`` is called when it was refused or has failed."""
        account = self.account
        account.n_sent += 1
        now_s = self.clock()

        def done(item: Item) -> None:
            if item.error is None:
                account.answered_s.append(self.clock())
            else:
                account.n_late += 1
                retry(item.error)

        item = Item(self.group, 1, None, arrived_s=now_s, deadline_s=now_s + timeout_s, on_done=done)
        try:
            self.batcher.submit(item)
        except BatchingError as error:
            account.n_refused += 1
            retry(error)
            return None
        account.n_admitted += 1
        account.most_waiting = max(account.most_waiting, self.batcher.n_waiting)
        return item

    def arrivals(self, rate: float, send: Callable[[], object]) -> None:
        """Let requests come at random, ``rate`` a second, from now on."""

        def one() -> None:
            send()
            self.time.at(self.clock() + self.rng.expovariate(rate), one)

        self.time.at(self.clock(), one)


def goodput(costs: dict[int, float], load: float, timeouts_s: tuple[float, ...]) -> tuple[float, Account]:
    """Answers a second, as a share of what the executor can do, once the load has lasted a while."""
    server = Server(costs)
    server.arrivals(load * server.capacity, lambda: server.send(server.rng.choice(timeouts_s)))
    server.time.run(3.0)
    return server.account.rate(1.0, 3.0) / server.capacity, server.account


@pytest.mark.parametrize(
    ("costs", "timeouts_s"),
    [
        pytest.param(
            costs,
            timeouts_s,
            id=f"{name}-{timeouts_s}",
            marks=pytest.mark.long if name == "linear" and timeouts_s != (0.2, 2.0) else (),
        )
        for name, costs in (("fixed", FIXED), ("linear", LINEAR))
        for timeouts_s in ((0.25,), (1.0,), (0.3, 0.6, 1.0), (0.2, 2.0))
    ],
)
def test_three_times_the_load_keeps_its_goodput_and_what_is_admitted_is_in_time(
    costs: dict[int, float], timeouts_s: tuple[float, ...]
) -> None:
    peak, _ = goodput(costs, 1.0, timeouts_s)
    overloaded, account = goodput(costs, 3.0, timeouts_s)
    assert overloaded >= 0.95 * peak
    assert account.missed <= 0.001
    assert account.n_refused > 0.3 * account.n_sent


@pytest.mark.parametrize("costs", [FIXED, LINEAR], ids=["fixed", "linear"])
def test_service_busy_at_low_load(costs: dict[int, float]) -> None:
    share, account = goodput(costs, 0.7, (1.0,))
    assert share > 0.65
    assert (account.n_refused, account.n_late) == (0, 0)


@pytest.mark.parametrize("costs", [FIXED, LINEAR], ids=["fixed", "linear"])
def test_a_retry_storm_fills_the_queue(costs: dict[int, float]) -> None:
    server = Server(costs)
    n_given_up = 0

    def attempt(n_left: int) -> None:
        def again(_: BatchingError | None) -> None:
            nonlocal n_given_up
            if n_left:
                server.time.at(server.clock() + 0.1 + server.rng.random() * 0.1, lambda: attempt(n_left - 1))
            else:
                n_given_up += 1

        server.send(1.0, retry=again)

    server.arrivals(3 * server.capacity, lambda: attempt(4))
    server.time.run(3.0)
    assert server.account.rate(1.0, 3.0) >= 0.8 * server.capacity
    assert server.account.missed <= 0.001
    assert n_given_up
    assert server.account.n_sent > 6 * server.capacity * 3.0


def test_an_unbounded_queue_crashes_the_server() -> None:
    server = Server(FIXED, max_rows=500)
    server.arrivals(10 * server.capacity, lambda: server.send(3_600.0))
    server.time.run(3.0)
    assert server.account.most_waiting == 500
    assert server.account.rate(1.0, 3.0) >= 0.95 * server.capacity
    assert server.batcher.n_waiting <= 500
    assert len(server.group._lane._items) <= 700, "what has left the queue is kept"


def test_requests_whose_deadline_has_passed_still_run() -> None:
    server = Server({1: 2e-4, 8: 3e-4})
    server.arrivals(30_000, lambda: server.send(server.rng.choice((1e-3, 1e-3, 5e-3))))
    server.time.run(0.5)
    assert server.executor.executed
    for item, started_s in server.executor.executed:
        assert item.deadline_s is not None
        assert started_s + server.group.costs.quickest_s <= item.deadline_s + 1e-9
    assert server.account.rate(0.1, 0.5) > 5_000


def test_cancelled_calls_leave_the_batcher_stuck() -> None:
    server = Server(FIXED)
    sent: list[Item] = []

    def send() -> None:
        item = server.send(0.5)
        if item is not None:
            sent.append(item)
            if server.rng.random() < 0.3:
                server.time.at(server.clock() + server.rng.random() * 0.3, lambda: server.batcher.cancel(item))

    server.arrivals(1.2 * server.capacity, send)
    server.time.run(3.0)
    old = [item for item in sent if server.clock() - item.arrived_s > 0.5 + 1e-3]
    assert len(old) > 500
    assert all(item.is_done for item in old)
    assert server.account.rate(1.0, 3.0) >= 0.7 * server.capacity


def test_disconnects_go_unnoticed() -> None:
    server = Server(LINEAR)
    leaving: set[int] = set()
    n_kept = 0
    n_running = 0

    def send() -> None:
        nonlocal n_kept, n_running
        item = server.send(30.0)
        assert item is not None
        if server.rng.random() < 0.5:
            leaving.add(id(item))

            def leave() -> None:
                nonlocal n_running
                n_running += not server.batcher.cancel(item)

            server.time.at(server.clock() + 10e-3, leave)
        else:
            n_kept += 1

    for number in range(600):
        server.time.at(number * 2e-4, send)
    server.time.run(30.0)
    executed = [id(item) for item, _ in server.executor.executed]
    assert len(executed) == len(set(executed)) == n_kept + n_running
    assert n_running < 0.2 * len(leaving)

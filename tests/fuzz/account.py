"""What the run itself knows of every request: an account apart from the batcher's, compared with it."""

from __future__ import annotations

from collections.abc import Hashable

from server.batching import (
    Batch,
    Cancelled,
    CostTable,
    DeadlineExceeded,
    ExampleFailed,
    ExecutionFailed,
    Group,
    Item,
    ModelUnloaded,
    QueueTimeout,
)
from tests.fuzz.virtual_time import VirtualTime

__all__ = ["Account", "Request", "Violation", "answer_to"]

WAITS, RUNS, RAN = 0, 1, 2
#: Times are sums of floats.
EPSILON_S = 1e-9


class Violation(AssertionError):
    """A promise is broken."""


def answer_to(value: int, key: Hashable) -> int:
    """Return the right answer to one row: it tells the row, and which version and shape answered."""
    return (value * 2_654_435_761 + hash(key) * 97) & 0xFFFFFFFF


class Request:
    """One request's rows, and all that happened to them."""

    __slots__ = ("deadline_s", "ended", "fault", "item", "key", "left", "n_rows", "number", "poison", "rows", "then")

    def __init__(
        self, number: int, key: Hashable, n_rows: int, *, poison: tuple[int, ...], deadline_s: float | None, then: str
    ) -> None:
        self.number = number
        self.key = key
        self.n_rows = n_rows
        self.poison = frozenset(poison)
        self.deadline_s = deadline_s
        self.then = then
        #: Where each row is: WAITS, RUNS, RAN.
        self.rows = [WAITS] * n_rows
        self.item: Item | None = None
        self.ended = False
        #: True: a batch with rows of it failed as a whole. ``left``: its caller cancelled it.
        self.fault = False
        self.left = False

    def __repr__(self) -> str:
        return f"request {self.number} of {self.key}"

    def value(self, row: int) -> int:
        return self.number * 1_000 + row


class Account:
    """Requests that were admitted, how they ended, and what must not have happened.

    The batcher logs what its callbacks raise, and goes on: a broken promise is therefore written down in ``wrong``, and
    the run looks there after each move.
    """

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.wrong: list[str] = []
        #: Requests that are not answered, in order of their arrival.
        self.live: dict[Request, None] = {}
        #: By key: how many of them there are; groups that were closed, with an error for those that wait or without.
        self.n_live: dict[Hashable, int] = {}
        self.closed: dict[Hashable, bool] = {}
        #: Keys whose batcher has said that nothing of them waits or runs any more.
        self.idle: set[Hashable] = set()
        self.n_rows_right = 0
        self.ends: dict[str, int] = {}

    def note(self, condition: object, sentence: str) -> None:
        """Write down that a promise is broken unless the condition holds."""
        if not condition:
            self.wrong.append(f"at {self._time.now_s:.6f} s: {sentence}")

    def admitted(self, request: Request) -> None:
        self.live[request] = None
        self.n_live[request.key] = self.n_live.get(request.key, 0) + 1

    def count(self, end: str) -> None:
        self.ends[end] = self.ends.get(end, 0) + 1

    # Batches.

    def starts(self, batch: Batch) -> int:
        """Judge a batch that is about to run. Return how many of its rows are bad."""
        note, key, now_s = self.note, batch.group.key, self._time.now_s
        n_rows = n_bad = 0
        for item, start, stop in batch.spans:
            request: Request = item.payload  # type: ignore[assignment]
            note(request.key == key, f"{request} is in a batch of {key}")
            note(not request.ended, f"{request} is executed after it was answered")
            due = request.deadline_s is not None and request.deadline_s <= now_s
            note(not due, f"{request} is executed after its deadline")
            for row in range(start, stop):
                if request.rows[row] != WAITS:
                    note(False, f"row {row} of {request} is executed twice")
                request.rows[row] = RUNS
                n_bad += row in request.poison
            n_rows += stop - start
        note(1 <= n_rows == batch.n_rows <= batch.bucket, f"{n_rows} rows are in a batch of {batch.n_rows}")
        note(batch.bucket in batch.group.costs.buckets, f"bucket {batch.bucket} does not exist")
        note(key not in self.idle, f"a batch of {key} starts, which was said to be idle")
        return n_bad

    def failed(self, batch: Batch) -> None:
        """Note that a batch fails as a whole."""
        for item, start, stop in batch.spans:
            request: Request = item.payload  # type: ignore[assignment]
            request.fault = True
            request.rows[start:stop] = [RAN] * (stop - start)

    # Answers.

    def done(self, request: Request, item: Item, costs: CostTable) -> None:
        """Judge an answer: there is one, it is the right one, or an error that there is a reason for."""
        note = self.note
        note(not request.ended, f"{request} is answered twice")
        note(request in self.live, f"{request} is answered, and was not admitted")
        request.ended = True
        if self.live.pop(request, request) is None:
            self.n_live[request.key] -= 1
        error = item.error
        self.count("answered" if error is None else type(error).__name__)
        if error is None:
            note(not request.poison, f"{request} has bad rows and got a result")
            note(request.rows == [RAN] * request.n_rows, f"{request} got a result before all of its rows ran")
            expected = [answer_to(request.value(row), request.key) for row in range(request.n_rows)]
            got = _rows_of(item)
            if got != expected:
                note(False, f"{request} got {got}, expected {expected}")
            self.n_rows_right += request.n_rows
        elif isinstance(error, ExampleFailed):
            note(request.poison, f"{request} has no bad row and got: {error}")
        elif isinstance(error, ExecutionFailed):
            note(request.fault, f"{request} was in no batch that failed and got: {error}")
        elif isinstance(error, Cancelled):
            note(request.left, f"{request} was not cancelled and got: {error}")
        elif isinstance(error, ModelUnloaded):
            note(self.closed.get(request.key), f"{request} was not unloaded and got: {error}")
        elif isinstance(error, DeadlineExceeded | QueueTimeout):
            longest_s = max(costs.by_bucket.values())
            is_hopeless = (
                request.deadline_s is not None and request.deadline_s <= self._time.now_s + longest_s + EPSILON_S
            )
            note(is_hopeless, f"{request} had time until {request.deadline_s} and got: {error}")
        else:
            note(False, f"{request} got {error!r}")

    def idles(self, key: Hashable) -> None:
        """Note that the batcher says of a closed group that nothing of it is left."""
        self.note(key not in self.idle, f"{key} is said to be idle twice")
        self.note(not self.n_live.get(key), f"{key} is said to be idle with {self.n_live.get(key)} unanswered")
        self.idle.add(key)

    def waiting(self) -> dict[Hashable, int]:
        """Count the rows that wait, by group."""
        counts: dict[Hashable, int] = {}
        for request in self.live:
            n_rows = request.rows.count(WAITS)
            if n_rows:
                counts[request.key] = counts.get(request.key, 0) + n_rows
        return counts

    def is_empty(self, groups: list[Group]) -> bool:
        """Return whether nothing is left, in this account and in the groups' own."""
        return not self.live and not any(
            group.n_rows
            or group.n_items
            or group.n_running
            or group.share.n_waiting
            or (group.quota and group.quota.n_rows)
            for group in groups
        )


def _rows_of(item: Item) -> list[object]:
    """Cut the item's rows from the outputs of the batches they ran in, the way a shell does it."""
    rows: list[object] = []
    for part in item.parts:
        if part.start != len(rows) or not isinstance(part.outputs, list):
            return ["parts that do not cover the rows in order"]
        rows += part.outputs[part.offset : part.offset + part.stop - part.start]
    return rows

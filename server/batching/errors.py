"""Why the core answers an item without a result, or does not admit it.

::

    RowwiseError
    └── BatchingError
        ├── Refused              raised by submit; the item was not admitted
        │   ├── Overloaded       the server as a whole holds as much as it may; try again after retry_after_s
        │   ├── QueueFull        try again after retry_after_s
        │   ├── TooManyRows      never fits: send fewer rows
        │   ├── Draining         the server is about to stop
        │   └── ModelUnloaded    the group is closed (waiting items can end with it too)
        ├── DeadlineExceeded     raised by submit, or the deadline passed while it ran
        ├── QueueTimeout         it waited until it could no longer be in time; try again after retry_after_s
        ├── Cancelled            its caller went away
        ├── ExampleFailed        the model refused one of its rows
        └── ExecutionFailed      the batch it ran in raised, through no row's fault
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from server.errors import RowwiseError

__all__ = [
    "BatchingError",
    "Cancelled",
    "DeadlineExceeded",
    "Draining",
    "ExampleFailed",
    "ExecutionFailed",
    "ModelUnloaded",
    "Overloaded",
    "QueueFull",
    "QueueTimeout",
    "Refused",
    "TooManyRows",
]

#: Bad instances whose sentences an error gives: a request of thousands must not get an answer of megabytes.
_MOST_NAMED = 8


class BatchingError(RowwiseError):
    """The core could not give an item its result."""


class Refused(BatchingError):
    """The item was not admitted: no row of it was queued, and its ``on_done`` is never called."""


class Overloaded(Refused):
    """More bytes than may wait in all queues together. ``retry_after_s`` as in QueueFull."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Refused):
    """More rows or bytes than the queue may hold, or than it can serve before the item's deadline.

    ``retry_after_s`` is the time, in seconds, in which what waits now will have run at the measured cost.
    """

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooManyRows(Refused):
    """The item alone has more rows or bytes than its queue may hold; trying again can't help."""


class Draining(Refused):
    """Admission has ended because the server is stopping.

    ``retry_after_s``: about what a server that is started again takes to load its models, unless told otherwise.
    """

    def __init__(
        self,
        message: str = "the server is stopping: ask another one, or try again when it has been started again",
        *,
        retry_after_s: float = 5.0,
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelUnloaded(Refused):
    """The group that the item belongs to was closed."""


class DeadlineExceeded(BatchingError):
    """The item's deadline passed, or is too near for its rows to finish in time whatever else there is to do."""


class QueueTimeout(BatchingError):
    """The item was admitted and waited until it could no longer be in time; no row of it runs after that.

    ``retry_after_s`` as in QueueFull.
    """

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Cancelled(BatchingError):
    """The item was taken back before all of its rows were executed."""


class ExampleFailed(BatchingError):
    """The model can't answer one of the item's examples: an index out of range, a division by zero, a check.

    Raised by a run it is a ``sentence`` about one of the rows that ran; as the error of an item it names the instances
    that are bad, each with its sentence.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self._label = ""
        self._by_row: Mapping[int, str] = {}

    @classmethod
    def of_rows(cls, label: str, by_row: Mapping[int, str]) -> ExampleFailed:
        """Say which rows of an item the model that ``label`` names refuses."""
        shown = [f"instance {row}: {sentence}" for row, sentence in sorted(by_row.items())[:_MOST_NAMED]]
        if len(by_row) > _MOST_NAMED:
            shown.append(f"and {len(by_row) - _MOST_NAMED} more")
        what = "" if len(by_row) == 1 else f"{len(by_row)} instances: "
        error = cls(f"{label} refuses {what}{'; '.join(shown)}")
        error._label, error._by_row = label, by_row
        return error

    def placed(self, places: Sequence[int]) -> ExampleFailed:
        """Return the same error for who knows the item's row ``i`` as instance ``places[i]``."""
        return self.of_rows(self._label, {places[row]: sentence for row, sentence in self._by_row.items()})


class ExecutionFailed(BatchingError):
    """The executor raised while it ran a batch that held rows of the item. ``cause`` is what it raised."""

    def __init__(self, message: str, *, cause: BaseException) -> None:
        super().__init__(message)
        self.cause = cause
        self.__cause__ = cause

"""Why the core answers an item without a result, or does not admit it.

::

    RowwiseError
    └── BatchingError
        ├── Refused              raised by submit; the item was not admitted
        │   ├── QueueFull        try again after retry_after_s
        │   ├── TooManyRows      never fits: send fewer rows
        │   ├── Draining         the server is about to stop
        │   └── ModelUnloaded    the group is closed (waiting items can end with it too)
        ├── DeadlineExceeded     raised by submit, or the end of an item that waited too long
        ├── Cancelled            its caller went away
        ├── ExampleFailed        the model refused one of its rows
        └── ExecutionFailed      the batch it ran in raised, through no row's fault
"""

from __future__ import annotations

from server.errors import RowwiseError

__all__ = [
    "BatchingError",
    "Cancelled",
    "DeadlineExceeded",
    "Draining",
    "ExampleFailed",
    "ExecutionFailed",
    "ModelUnloaded",
    "QueueFull",
    "Refused",
    "TooManyRows",
]


class BatchingError(RowwiseError):
    """The core could not give an item its result."""


class Refused(BatchingError):
    """The item was not admitted: no row of it was queued, and its ``on_done`` is never called."""


class QueueFull(Refused):
    """More rows than the queue may hold, or than it can serve before the item's deadline.

    ``retry_after_s`` is the time, in seconds, in which what waits now will have run at the measured cost.
    """

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooManyRows(Refused):
    """The item alone has more rows than its queue may hold; trying again can't help."""


class Draining(Refused):
    """Admission has ended because the server is stopping. ``retry_after_s`` as in QueueFull."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelUnloaded(Refused):
    """The group that the item belongs to was closed."""


class DeadlineExceeded(BatchingError):
    """The item's deadline passed, or is too near for its rows to finish in time."""


class Cancelled(BatchingError):
    """The item was taken back before all of its rows were executed."""


class ExampleFailed(BatchingError):
    """The model can't answer one of the item's examples: an index out of range, a division by zero, a check."""


class ExecutionFailed(BatchingError):
    """The executor raised while it ran a batch that held rows of the item. ``cause`` is what it raised."""

    def __init__(self, message: str, *, cause: BaseException) -> None:
        super().__init__(message)
        self.cause = cause
        self.__cause__ = cause

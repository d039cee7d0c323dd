"""How a request ended, as every front end sees it."""

from __future__ import annotations

from server.batching import Batch
from server.errors import RowwiseError
from server.protocol import Column

__all__ = ["Answer"]


class Answer:
    """What became of a request.

    ``error`` is None exactly if ``outputs`` are there: in the signature's order, an array ``[n, *shape]`` where the
    output's shape is fixed, else a list of n arrays at their true lengths. ``batch`` is the last batch that
    executed rows of it (None if none did); ``queue_s`` the longest wait of a row, seconds.
    """

    __slots__ = ("batch", "error", "outputs", "queue_s")

    def __init__(
        self, *, error: RowwiseError | None, outputs: list[Column], batch: Batch | None, queue_s: float
    ) -> None:
        self.error = error
        self.outputs = outputs
        self.batch = batch
        self.queue_s = queue_s

    @property
    def batch_id(self) -> int:
        """The batch's number; 0 if no row was executed."""
        return 0 if self.batch is None else self.batch.id

    @property
    def bucket(self) -> int:
        """Rows of the batch's graph."""
        return 0 if self.batch is None else self.batch.bucket

    @property
    def batch_rows(self) -> int:
        """Rows of the batch that belonged to callers."""
        return 0 if self.batch is None else self.batch.n_rows

    @property
    def compute_s(self) -> float:
        """Execution time of the batch, hand-over included, seconds."""
        return 0.0 if self.batch is None else self.batch.finished_s - self.batch.dispatched_s

    @property
    def reason(self) -> str:
        """Why the batch was dispatched as it was."""
        return "" if self.batch is None else self.batch.reason

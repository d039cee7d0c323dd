"""The digits model on mosec: an HTTP front end in Rust, a worker process that is handed batches.

python -m loadtests.peers.mosec_server PORT MAX_BATCH
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from mosec import Runtime, Server, Worker

from loadtests.peers.by_hand import MODEL, answer_body, batched, image_of

__all__ = ["Digits", "main"]

#: Both are read again in the worker process, which mosec starts anew.
_BATCH_VARIABLE = "ROWWISE_RACE_MOSEC_BATCH"
#: How long it waits for a batch to fill, milliseconds: its own default.
_WAIT_MS = 10


class Digits(Worker):
    """One worker: bytes of requests -> probabilities."""

    def __init__(self) -> None:
        super().__init__()
        largest = int(os.environ[_BATCH_VARIABLE])
        self._run = batched([size for size in (1, 2, 4, 8, 16, 32, 64) if size <= largest])
        self._largest = largest

    def deserialize(self, data: bytes) -> list[float]:
        """Read one request."""
        return image_of(data)

    def forward(self, data: Any) -> Any:
        """Answer a batch; with a largest batch of 1, mosec hands over one request and no list."""
        return list(self._run(data)) if self._largest > 1 else self._run([data])[0]

    def serialize(self, data: np.ndarray) -> bytes:
        """Write one answer."""
        return answer_body(data)


def main() -> None:
    """Serve until told to stop."""
    port, largest = sys.argv[1], sys.argv[2]
    os.environ[_BATCH_VARIABLE] = largest
    sys.argv[1:] = ["--port", port, "--address", "127.0.0.1", "--log-level", "warning"]
    server = Server()
    server.register_runtime(
        {f"/v1/models/{MODEL}:predict": [Runtime(Digits, max_batch_size=int(largest), max_wait_time=_WAIT_MS)]}
    )
    server.run()


if __name__ == "__main__":
    main()

"""The digits model on LitServe: FastAPI in front, a worker process that is handed batches.

python -m loadtests.peers.litserve_server PORT
"""

from __future__ import annotations

import sys
from typing import Any

import litserve
import numpy as np

from loadtests.peers.by_hand import MODEL, batched

__all__ = ["Digits", "main"]

_LARGEST = 64
#: Seconds that it waits for a batch to fill.
_WAIT_S = 0.002


class Digits(litserve.LitAPI):
    """One worker: parsed requests -> probabilities."""

    def setup(self, device: str) -> None:  # noqa: ARG002 - LitServe's signature
        """Load the model."""
        self._run = batched((1, 2, 4, 8, 16, 32, _LARGEST))

    def decode_request(self, request) -> Any:  # type: ignore[no-untyped-def]
        """Take the image out of a request. Annotated, LitServe would look for it in the URL."""
        return request["instances"][0]

    def batch(self, inputs: list[Any]) -> list[Any]:
        """Keep a list: arrays are made once, below."""
        return inputs

    def predict(self, x: list[Any]) -> list[np.ndarray]:
        """Answer a batch."""
        return list(self._run(x))

    def unbatch(self, output: list[np.ndarray]) -> list[np.ndarray]:
        """Hand the answers over one by one."""
        return output

    def encode_response(self, output: np.ndarray) -> dict[str, Any]:
        """Return what is written as JSON."""
        return {"predictions": [output.tolist()]}


def main() -> None:
    """Serve until told to stop."""
    api = Digits(max_batch_size=_LARGEST, batch_timeout=_WAIT_S, api_path=f"/v1/models/{MODEL}:predict")
    litserve.LitServer(api, accelerator="cpu", workers_per_device=1).run(
        host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", generate_client_file=False
    )


if __name__ == "__main__":
    main()

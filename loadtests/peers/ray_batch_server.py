"""The digits model on Ray Serve as its documents would have it: ``@serve.batch``, and the batch written by hand.

python -m loadtests.peers.ray_batch_server PORT REPLICAS, on the cluster that RAY_ADDRESS names
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from loadtests.peers.by_hand import answer_body, batched, image_of

__all__ = ["APPLICATION", "PATH", "application", "main"]

APPLICATION = "byhand"
#: Where it answers: beside ours, on the same proxy.
PATH = f"/v1/models/{APPLICATION}:predict"
_LARGEST = 64
#: Seconds that it waits for a batch to fill.
_WAIT_S = 0.002


def application(replicas: int) -> Any:
    """Return the application."""
    from ray import serve
    from starlette.responses import Response

    class Digits:
        """One replica: requests -> batches -> answers."""

        def __init__(self) -> None:
            self._run = batched((1, 2, 4, 8, 16, 32, _LARGEST))

        @serve.batch(max_batch_size=_LARGEST, batch_wait_timeout_s=_WAIT_S)  # type: ignore[untyped-decorator]
        async def predict(self, images: list[Any]) -> list[Any]:
            """Answer a batch."""
            return list(self._run(images))

        async def __call__(self, request: Any) -> Response:
            """Answer a request."""
            if request.method == "GET":
                return Response(b"ready")
            return Response(
                answer_body(await self.predict(image_of(await request.body()))), media_type="application/json"
            )

    options = {"num_cpus": 1}
    deployment = serve.deployment(
        Digits, num_replicas=replicas, max_ongoing_requests=2_048, ray_actor_options=options, name=APPLICATION
    )
    return deployment.bind()


def main() -> None:
    """Serve until told to stop."""
    import ray
    from ray import serve

    port, replicas = int(sys.argv[1]), int(sys.argv[2])
    ray.init(log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(application(replicas), name=APPLICATION, route_prefix=PATH)
    print(f"{APPLICATION} answers on http://127.0.0.1:{port}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.delete(APPLICATION)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()

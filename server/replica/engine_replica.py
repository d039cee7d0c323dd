"""One replica as Ray Serve sees it: what it asks besides requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.replica.autoscaling import ROWS_METRIC

if TYPE_CHECKING:
    from server.replica.embedded import EmbeddedServer

__all__ = ["EngineReplica"]


class EngineReplica:
    """The class of the deployment. ``serve.ingress`` gives it ``app``, which answers requests."""

    app: EmbeddedServer

    def check_health(self) -> None:
        """Errors: RuntimeError where it does not serve; Ray Serve replaces the replica then."""
        self.app.check()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what ``scale_by_rows`` goes by."""
        return {ROWS_METRIC: float(self.app.n_rows)}

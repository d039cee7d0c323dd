"""Threads and processes of the settings against the cores that this process may use."""

from __future__ import annotations

from collections.abc import Iterator

from rowwise.doctor.finding import Finding, advice, fine
from server.settings import Settings

__all__ = ["cores_findings"]


def cores_findings(settings: Settings, *, n_cores: int, quota_cores: float | None) -> Iterator[Finding]:
    """Yield what does not fit. ``n_cores``: those of the affinity mask; ``quota_cores``: a control group's time."""
    usable = n_cores if quota_cores is None else min(n_cores, quota_cores)
    engines = settings.engines if isinstance(settings.engines, int) else 1
    n_busy = settings.http_workers + engines
    if quota_cores is not None and quota_cores < n_cores:
        yield advice(
            "cores",
            f"{n_cores} cores can be used, and the control group gives {quota_cores:g} cores' worth of their time",
            why=f"TensorFlow makes threads for {n_cores}: they use the time up early in each period, and all requests "
            "stand still until the next",
            to_do="give it whole cores (cpuset, docker --cpuset-cpus, taskset) in the place of a quota (--cpus)",
        )
    if (settings.http_workers or engines > 1) and n_busy > usable:
        yield advice(
            "cores",
            f"http_workers ({settings.http_workers}) and engines ({engines}) keep {n_busy} cores busy, and there are "
            f"{usable:g}",
            why="they take each other's time: it is slower than fewer of them",
            to_do="lower --http-workers, or --engines where models run on the processor",
        )
    if quota_cores is None or quota_cores >= n_cores:
        yield fine("cores", f"{n_cores} cores")

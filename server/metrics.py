"""Everything that the server counts, in Prometheus' form.

Labels have bounded values: a model's name gets into them only once that model is known, so that strangers asking
for names can't make series. Series of a deleted version go with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from server.quick_histogram import SECONDS, QuickHistogram
from server.request_counts import RequestCounts, VersionRequests
from server.state_metrics import RequestSeconds, StateMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["EntryKey", "Metrics", "Scrape", "Totals", "VersionMetrics"]

#: Model, version and entry point.
EntryKey = tuple[str, int, str]

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_PADDING = (0, *_ROWS)

#: ``entry`` is the entry point: ``predict``, or the name of a derivative.
_VERSION = ("model", "version", "entry")
#: Label of requests that reached no model: unknown names, malformed paths.
_NOBODY = ""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer to ``GET /metrics``."""

    body: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Totals:
    """What was counted of one entry point since the process began, or its version was made."""

    rows: int = 0
    batches: int = 0
    padding_rows: int = 0
    #: Seconds of execution.
    compute_s: float = 0.0


class Metrics:
    """The process's registry. ``of_version`` gives the series of one version, looked up once and kept.

    ``requests`` are counted apart, for other processes may answer some of them.
    All methods are called on the event loop's thread.
    """

    def __init__(self, *, process: bool = True, requests: RequestCounts | None = None) -> None:
        # A series for the time when each counter was made doubles their number, and tells what its reset does.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        if process:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
        registry = self.registry
        self.requests = RequestCounts() if requests is None else requests
        #: Counts a line that this process could not put into the audit log.
        self.audit_failures = self.requests.audit_failures
        registry.register(self.requests)
        self.request_seconds = RequestSeconds()
        registry.register(self.request_seconds)
        self.states = StateMetrics()
        registry.register(self.states)
        self.rows = Counter("rowwise_rows", "Rows executed, without padding.", _VERSION, registry=registry)
        self.batches = Counter("rowwise_batches", "Batches executed.", _VERSION, registry=registry)
        self.batch_rows = _histogram(registry, "rowwise_batch_rows", "Rows of a batch, without padding.", _ROWS)
        self.batch_padding = _histogram(
            registry, "rowwise_batch_padding_rows", "Rows that only filled a bucket.", _PADDING
        )
        self.queue_seconds = _histogram(
            registry, "rowwise_queue_seconds", "Time from admission to execution, by request.", SECONDS
        )
        self.compute_seconds = _histogram(registry, "rowwise_compute_seconds", "Execution time, by batch.", SECONDS)
        self.queue_rows = Gauge("rowwise_queue_rows", "Rows that wait now.", _VERSION, registry=registry)
        self.shadow_batches = Counter(
            "rowwise_shadow_batches",
            "Live batches taken for a shadow version, by result.",
            ("model", "version", "result"),
            registry=registry,
        )
        self.shadow_rows = Counter(
            "rowwise_shadow_rows",
            "Rows that a shadow version answered, by result.",
            ("model", "version", "result"),
            registry=registry,
        )
        self.compiled = Gauge(
            "rowwise_compiled_after_ready",
            "Executables compiled while no version was being loaded: 0, or requests waited for compilations.",
            registry=registry,
        )
        self.traced_seconds = Gauge(
            "rowwise_traced_seconds", "Time spent on tracing functions in the process that serves.", registry=registry
        )
        self.builds = Counter("rowwise_builds", "Builds that ended, by result.", ("result",), registry=registry)
        self._versions: dict[EntryKey, VersionMetrics] = {}
        self._refreshers: list[Callable[[], None]] = []
        #: Called on a thread before a scrape.
        self._slow: list[Callable[[], None]] = []

    def of_version(self, model: str, version: int, entry: str = "predict") -> VersionMetrics:
        """Return the series of an entry point of a version that exists."""
        found = self._versions.get((model, version, entry))
        if found is None:
            found = self._versions[model, version, entry] = VersionMetrics(self, model, version, entry)
            self.requests.remember(model, str(version))
        return found

    def totals(self) -> dict[EntryKey, Totals]:
        """Return what was counted of each entry point."""
        return {key: series.totals() for key, series in self._versions.items()}

    def request_without_model(self, code: int, *, reason: str = "") -> None:
        """Count a request that no version answered."""
        self.requests.counter(_NOBODY, _NOBODY, _NOBODY, str(code), reason)()

    def build_ended(self, result: str) -> None:
        """Count a build. ``result`` is ``available``, or the name of an error class: bounded by our code."""
        self.builds.labels(result).inc()

    def shadow_ran(self, model: str, version: int, result: str, n_rows: int, n_differing: int) -> None:
        """Count a batch that was taken for a shadow: ``result`` is ``compared``, ``failed`` or ``dropped``."""
        self.shadow_batches.labels(model, str(version), result).inc()
        if result == "compared":
            self.shadow_rows.labels(model, str(version), "equal").inc(n_rows - n_differing)
            self.shadow_rows.labels(model, str(version), "different").inc(n_differing)

    def forget(self, model: str, version: int) -> None:
        """Drop the series of a version that was deleted."""
        for key in [key for key in self._versions if key[:2] == (model, version)]:
            self._forget(self._versions.pop(key))
        for family in (self.shadow_batches, self.shadow_rows):
            family.remove_by_labels({"model": model, "version": str(version)})
        self.requests.forget(model, str(version))

    def _forget(self, known: VersionMetrics) -> None:
        for family in (
            self.rows,
            self.batches,
            self.batch_rows,
            self.batch_padding,
            self.queue_seconds,
            self.compute_seconds,
            self.queue_rows,
        ):
            family.remove(*known.labels)

    def before_scrape(self, refresh: Callable[[], None]) -> None:
        """Let ``refresh`` set what is a state and not a count, such as ``queue_depth``, before each scrape."""
        self._refreshers.append(refresh)

    def before_scrape_on_a_thread(self, look: Callable[[], None]) -> None:
        """Let ``look`` find out what takes a while, before each scrape and beside the event loop."""
        self._slow.append(look)

    async def scrape(self) -> Scrape:
        """Return the exposition text after all have looked."""
        for look in self._slow:
            await asyncio.to_thread(look)
        return self.render()

    def render(self) -> Scrape:
        """Return the exposition text."""
        for refresh in self._refreshers:
            refresh()
        return Scrape(generate_latest(self.registry), CONTENT_TYPE_LATEST)


class VersionMetrics(VersionRequests):
    """The series of one version: what the hot path touches."""

    __slots__ = (
        "_batch_padding",
        "_batch_rows",
        "_batches",
        "_compute_seconds",
        "_queue_rows",
        "_queue_seconds",
        "_rows",
        "labels",
    )

    def __init__(self, metrics: Metrics, model: str, version: int, entry: str) -> None:
        #: Model, version and entry point.
        self.labels = labels = (model, str(version), entry)
        super().__init__(metrics.requests.counter, labels)
        self._rows = metrics.rows.labels(*labels)
        self._batches = metrics.batches.labels(*labels)
        self._batch_rows = metrics.batch_rows.labels(*labels)
        self._batch_padding = metrics.batch_padding.labels(*labels)
        self._queue_seconds = metrics.queue_seconds.labels(*labels)
        self._compute_seconds = metrics.compute_seconds.labels(*labels)
        self._queue_rows = metrics.queue_rows.labels(*labels)

    def batch(self, *, n_rows: int, bucket: int, compute_s: float) -> None:
        """Record a batch that was executed: ``n_rows`` of callers in a graph of ``bucket`` rows."""
        self._rows.inc(n_rows)
        self._batches.inc()
        self._batch_rows.observe(n_rows)
        self._batch_padding.observe(bucket - n_rows)
        self._compute_seconds.observe(compute_s)

    def totals(self) -> Totals:
        """Return what was counted."""
        rows = self._batch_rows
        return Totals(int(rows.total), rows.n, int(self._batch_padding.total), self._compute_seconds.total)

    def waited(self, queue_s: float, n: int = 1) -> None:
        """Record how long the rows of ``n`` requests waited for their execution."""
        self._queue_seconds.observe(queue_s, n)

    def queue_depth(self, n_rows: int) -> None:
        """Set how many rows wait now."""
        self._queue_rows.set(n_rows)


def _histogram(registry: CollectorRegistry, name: str, documentation: str, bounds: Sequence[float]) -> QuickHistogram:
    family = QuickHistogram(name, documentation, _VERSION, bounds=bounds)
    registry.register(family)
    return family

"""Requests by model, version, entry point, status code and reason, whatever process answered them.

The same tallies hold what else every process counts: lines that the audit log lacks.
"""

from __future__ import annotations

from collections import Counter as Sums
from collections.abc import Callable, Iterable
from pathlib import Path

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from server.tally import Count, Labels, Tally, read_tally

__all__ = ["RequestCounts", "VersionRequests", "WorkerMetrics"]

#: Model and version.
_Version = tuple[str, str]
#: What lines that the audit log lacks are counted under; requests have more labels.
_AUDIT_FAILURES = ("audit_log_failures",)


class RequestCounts(Collector):
    """The sum of this process's tally and those of other processes, as one family of counters.

    ``others`` lists the files of the others when it is asked.
    """

    label_names = ("model", "version", "entry", "code", "reason")

    def __init__(self, own: Tally | None = None, *, others: Callable[[], Iterable[Path]] = tuple) -> None:
        self._own = Tally() if own is None else own
        self._others = others
        #: Counts a line that this process could not put into the audit log.
        self.audit_failures = self._own.counter(*_AUDIT_FAILURES)
        #: What had been counted of versions when they were forgotten: tallies only grow.
        self._forgotten: dict[Labels, int] = {}
        #: Versions that are not shown until they are there again.
        self._gone: set[_Version] = set()

    def counter(self, *labels: str) -> Count:
        """Return what counts requests."""
        return self._own.counter(*labels)

    def forget(self, model: str, version: str) -> None:
        """Show nothing more of a version that was deleted."""
        self._gone.add((model, version))
        self._forgotten |= {labels: n for labels, n in self.sums().items() if labels[:2] == (model, version)}

    def keep(self, versions: Iterable[_Version]) -> None:
        """Forget every version but these, which are all that there are: files may tell of older ones."""
        known = set(versions)
        for version in {(labels[0], labels[1]) for labels in self.sums()}:
            if version[0] and version not in known:
                self.forget(*version)

    def remember(self, model: str, version: str) -> None:
        """Show a version again: another one of the same number was made."""
        self._gone.discard((model, version))

    def describe(self) -> list[CounterMetricFamily]:
        """Return the family without its samples."""
        return [
            CounterMetricFamily(
                "rowwise_requests",
                "Prediction requests by HTTP status code; reason: the class of the error, empty for what was answered.",
                labels=self.label_names,
            )
        ]

    def collect(self) -> list[CounterMetricFamily]:
        """Return the family."""
        (family,) = self.describe()
        for labels, n in sorted(self.sums().items()):
            n_new = n - self._forgotten.get(labels, 0)
            if labels[:2] not in self._gone and n_new > 0:
                family.add_metric(labels, n_new)
        return [family]

    def sums(self) -> Sums[Labels]:
        """Return all counts of requests, of versions that are gone too."""
        sums = self._all()
        del sums[_AUDIT_FAILURES]
        return sums

    def n_audit_failures(self) -> int:
        """Return how many lines the audit log lacks, of all processes."""
        return self._all()[_AUDIT_FAILURES]

    def _all(self) -> Sums[Labels]:
        sums: Sums[Labels] = Sums()
        for counts in (self._own.counts(), *map(read_tally, self._others())):
            for labels, n in counts:
                sums[labels] += n
        return sums


class VersionRequests:
    """Counts the requests of one entry point of a version by their status code."""

    __slots__ = ("_counted", "_counter", "_labels")

    def __init__(self, counter: Callable[..., Count], labels: tuple[str, str, str]) -> None:
        self._counter = counter
        self._labels = labels
        #: By code, or by code and reason where there is one: answers have none, and are most.
        self._counted: dict[int | tuple[int, str], Count] = {}

    def request(self, code: int, n: int = 1, *, reason: str = "") -> None:
        """Count ``n`` requests that were answered with ``code``, for ``reason``; 499: their callers had left."""
        key = (code, reason) if reason else code
        count = self._counted.get(key)
        if count is None:
            count = self._counted[key] = self._counter(*self._labels, str(code), reason)
        count(n)

    def waited(self, queue_s: float, n: int = 1) -> None:
        """How long rows waited is recorded where they waited: in the engine."""


class WorkerMetrics:
    """What a worker counts: its answers, by their codes, in its own tally. The engine adds up all of them."""

    def __init__(self, tally: Tally) -> None:
        self._counter = tally.counter
        #: Counts a line that this process could not put into the audit log.
        self.audit_failures = tally.counter(*_AUDIT_FAILURES)
        self._versions: dict[tuple[str, int, str], VersionRequests] = {}

    def of_version(self, model: str, version: int, entry: str = "predict") -> VersionRequests:
        """Return the counters of an entry point."""
        key = (model, version, entry)
        found = self._versions.get(key)
        if found is None:
            found = self._versions[key] = VersionRequests(self._counter, (model, str(version), entry))
        return found

    def request_without_model(self, code: int, *, reason: str = "") -> None:
        """Count a request that no version answered."""
        self._counter("", "", "", str(code), reason)()

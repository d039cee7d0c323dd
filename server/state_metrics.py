"""Metrics of what is, beside those of what was counted: made anew for each scrape, so nothing must be forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from server.quick_histogram import HistogramSeries

__all__ = ["RequestSeconds", "StateMetrics", "States"]

#: The values of families by their names: labels, in the family's order, and the value under them.
States: TypeAlias = Mapping[str, Iterable[tuple[tuple[str, ...], float]]]


@dataclass(frozen=True, slots=True)
class _Family:
    documentation: str
    labels: tuple[str, ...] = ()
    is_counter: bool = False


_VERSION = ("model", "version")
_PROCESS = ("process",)

#: What may be told. Those of processes have one series for each process of the server.
_FAMILIES: dict[str, _Family] = {
    "rowwise_info": _Family("Always 1; its labels say which release runs.", ("version", "tensorflow", "python")),
    "rowwise_ready": _Family("1: every active model is warm, and the server is not stopping; else 0."),
    "rowwise_versions": _Family("Versions of a model that are in a state.", ("model", "state")),
    "rowwise_active_version": _Family(
        "Number of the version that answers where a request names none; no series where none does.", ("model",)
    ),
    "rowwise_queue_limit_rows": _Family("Most rows that may wait for a version, whatever its entry point.", _VERSION),
    "rowwise_queue_bytes": _Family("Bytes of decoded examples that wait now, for all models."),
    "rowwise_queue_limit_bytes": _Family("Most bytes of them (server_queue_bytes)."),
    "rowwise_store_free_bytes": _Family("Free on the file system of the model store, for the server's user."),
    "rowwise_store_size_bytes": _Family("Size of that file system."),
    "rowwise_tls_certificate_expiry_seconds": _Family(
        "When the server's certificate ends, in seconds since 1970; no series without TLS."
    ),
    "rowwise_audit_log_failures": _Family("Lines that the audit log could not take.", is_counter=True),
    "rowwise_process_resident_bytes": _Family("Resident memory.", _PROCESS),
    "rowwise_process_cpu_seconds": _Family("Processor time of all threads.", _PROCESS, is_counter=True),
    "rowwise_process_open_descriptors": _Family("Open file descriptors.", _PROCESS),
    "rowwise_process_max_descriptors": _Family("Most file descriptors that may be open.", _PROCESS),
    "rowwise_process_threads": _Family("Threads.", _PROCESS),
    "rowwise_process_start_time_seconds": _Family("When it was started, in seconds since 1970.", _PROCESS),
    "rowwise_process_restarts": _Family(
        "How often it was started again after it had ended; no series where one process is all.",
        _PROCESS,
        is_counter=True,
    ),
}


class StateMetrics(Collector):
    """Families whose values ``look`` gives at each scrape; none before it is set."""

    def __init__(self) -> None:
        self.look: Callable[[], States] = dict

    def describe(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """Return the families without their samples."""
        return [_empty(name, family) for name, family in _FAMILIES.items()]

    def collect(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """Return those that have samples."""
        found = []
        for name, samples in self.look().items():
            family = _empty(name, _FAMILIES[name])
            for labels, value in samples:
                family.add_metric(labels, value)
            if family.samples:
                found.append(family)
        return found


class RequestSeconds(Collector):
    """How long requests took that got their outputs, as ``look`` gives it for each entry point that is loaded."""

    label_names = (*_VERSION, "entry")

    def __init__(self) -> None:
        self.look: Callable[[], Iterable[tuple[tuple[str, str, str], HistogramSeries]]] = tuple

    def describe(self) -> list[HistogramMetricFamily]:
        """Return the family without its samples."""
        return [
            HistogramMetricFamily(
                "rowwise_request_seconds",
                "Time from admission to the outputs, by request that got them.",
                labels=self.label_names,
            )
        ]

    def collect(self) -> list[HistogramMetricFamily]:
        """Return the family."""
        (family,) = self.describe()
        for labels, series in self.look():
            series.add_to(family, labels)
        return [family]


def _empty(name: str, family: _Family) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
    return kind(name, family.documentation, labels=family.labels)

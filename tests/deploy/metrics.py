"""The server's metrics, three ways: as its registry describes them, as the manual does, and as an exposition does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from server.metrics import Metrics

__all__ = ["Metric", "metrics_of_exposition", "metrics_of_page", "metrics_of_registry"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "observing.md"
_ROW = re.compile(r"^\| `([a-z_]+)` \| (\w+) \| ([\w ]+) \| (.*?) \| (.+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Metric:
    kind: str
    labels: frozenset[str]
    meaning: str
    unit: str = ""

    name: str = ""

    @property
    def samples(self) -> list[str]:
        """The names of its series."""
        if self.kind == "histogram":
            return [f"{self.name}_{suffix}" for suffix in ("bucket", "sum", "count")]
        return [self.name]


def metrics_of_registry() -> dict[str, Metric]:
    found = {}
    registry = Metrics().registry
    for collector in list(registry._collector_to_names):
        described = list(collector.describe()) if hasattr(collector, "describe") else []
        for family in described or list(collector.collect()):
            labels = family.samples[0].labels if family.samples else ()
            names = getattr(family, "_labelnames", None) or getattr(collector, "_labelnames", None)
            name = family.name + ("_total" if family.type == "counter" else "")
            of_ours = getattr(collector, "label_names", ())
            found[name] = Metric(family.type, frozenset(labels or names or of_ours), family.documentation, name=name)
    return found


def metrics_of_page() -> dict[str, Metric]:
    return {
        name: Metric(kind, frozenset(re.findall(r"`(\w+)`", labels)), meaning, unit.strip(), name)
        for name, kind, unit, labels, meaning in _ROW.findall(PAGE.read_text().split("## Prometheus and alerts")[0])
    }


def metrics_of_exposition(text: str) -> dict[str, Metric]:
    found = {}
    for family in text_string_to_metric_families(text):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        name = family.name + ("_total" if family.type == "counter" else "")
        found[name] = Metric(family.type, frozenset(labels), family.documentation, name=name)
    return found

"""The manual's list of metrics is the server's: names, types, labels, meanings; and units are those that names say."""

from __future__ import annotations

from tests.deploy.metrics import metrics_of_page, metrics_of_registry


def test_the_page_lists_what_the_server_may_export_and_nothing_else() -> None:
    page, registry = metrics_of_page(), metrics_of_registry()
    assert sorted(page) == sorted(registry)
    assert len(page) > 30
    for name, metric in registry.items():
        documented = page[name]
        assert documented.kind == metric.kind, name
        assert documented.labels == metric.labels, name
        assert documented.meaning == metric.meaning, name


def test_units_are_those_that_the_names_say() -> None:
    for name, metric in metrics_of_page().items():
        bare = name.removesuffix("_total")
        if bare.endswith("_seconds"):
            assert metric.unit == "seconds", name
        elif bare.endswith("_bytes"):
            assert metric.unit == "bytes", name
        elif bare.endswith("_rows"):
            assert metric.unit == "rows", name
        else:
            assert metric.unit not in {"", "seconds", "bytes"} or name.startswith("process_"), name

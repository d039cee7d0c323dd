"""The dashboard asks for series that the server exports, with labels that they have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.dashboard.panel import dashboard as rendered_dashboard
from scripts.dashboard.panels import ROWS
from tests.deploy.metrics import metrics_of_registry

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
GRAFANA = DEPLOY / "grafana"

#: What a scrape adds to every series.
SCRAPE_LABELS = {"instance", "job"}
#: What Prometheus itself says of a target.
OF_PROMETHEUS = {"up": frozenset({"instance", "job"})}
NOT_A_METRIC = {
    "by", "changes", "histogram_quantile", "increase", "label_values", "max", "min", "or", "rate", "sum", "time",
    "unless", "vector",
}  # fmt: skip


def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "rowwise.json").read_text())
    return document


@cache
def exported() -> dict[str, frozenset[str]]:
    """Return each sample's name with its labels, from what a server's registry says that it may hold."""
    return OF_PROMETHEUS | {name: metric.labels for metric in metrics_of_registry().values() for name in metric.samples}


def queries() -> Iterator[tuple[str, str]]:
    document = dashboard()
    for panel in document["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in document["templating"]["list"]:
        yield variable["name"], variable["definition"]


def rules() -> Iterator[tuple[str, str]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        yield rule["alert"], rule["expr"]


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each metric of a PromQL expression with the labels that select it."""
    without_strings = re.sub(r'"[^"]*"', '""', expression)
    without_grouping = re.sub(r"\bby \([^)]*\)|\boffset \w+|\b\d+\b", "", without_strings)
    without_labels = re.sub(r"(label_values\([^,]+), \w+\)", r"\1)", without_grouping)
    bare = re.sub(r"\{[^}]*\}", lambda found: " " * len(found.group()), re.sub(r"\[[^\]]*\]", "", without_labels))
    text = re.sub(r"\[[^\]]*\]", "", without_labels)
    for found in re.finditer(r"[a-zA-Z_][a-zA-Z0-9_]*", bare):
        if found.group() not in NOT_A_METRIC:
            braces = re.match(r"\{([^}]*)\}", text[found.end() :])
            labels = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", braces.group(1))) if braces else set()
            yield found.group(), labels


def grouping(expression: str) -> set[str]:
    return {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")} - {"le"}


def test_a_query_is_taken_apart_into_metrics_and_labels() -> None:
    expression = 'sum by (model) (rate(a_total{model=~"$m",code!="200"}[5m])) / b_rows or vector(0)'
    assert list(selectors(expression)) == [("a_total", {"model", "code"}), ("b_rows", set())]
    assert list(selectors("label_values(c_total, model)")) == [("c_total", set())]
    assert grouping(expression) == {"model"}


@pytest.mark.parametrize(("title", "expression"), [*queries(), *rules()])
def test_each_query_names_series_and_labels_that_the_server_exports(title: str, expression: str) -> None:
    found = list(selectors(expression))
    assert found, f"{title}: no metric in {expression}"
    for name, labels in found:
        assert name in exported(), f"{title}: the server exports no {name}"
        assert labels <= exported()[name] | SCRAPE_LABELS, f"{title}: {name} has no label {labels - exported()[name]}"
    known = set().union(*(exported()[name] for name, _ in found))
    assert grouping(expression) <= known | SCRAPE_LABELS, f"{title}: grouped by a label that is not there"


def test_every_series_of_the_server_is_on_the_dashboard() -> None:
    shown = {name for _, expression in queries() for name, _ in selectors(expression)}
    missing = [
        name
        for name, metric in metrics_of_registry().items()
        if name.startswith("rowwise_") and not shown & set(metric.samples)
    ]
    assert missing == []


def test_the_dashboard_is_what_its_list_of_panels_makes() -> None:
    assert rendered_dashboard(ROWS) == dashboard(), "run `make dashboard`"


def test_panels_have_units_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids))


def test_the_dashboard_reads_the_datasource_that_is_provisioned() -> None:
    provisioned = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    uids = {source["uid"] for source in provisioned}
    used = set(
        re.findall(r'"type": "prometheus",\s*"uid": "([^"]+)"', (GRAFANA / "dashboards/rowwise.json").read_text())
    )
    assert used
    assert used <= uids


def test_grafana_looks_for_dashboards_where_compose_mounts_them() -> None:
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/rowwise.yml").read_text())["providers"]
    compose = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text())
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
    assert mounts["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"


def test_prometheus_scrapes_the_server_where_it_listens() -> None:
    compose = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text())
    (job,) = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    service, port = target.split(":")
    published = [entry.split(":")[-1] for entry in compose["services"][service]["ports"]]
    assert port in published
    assert job["job_name"] == "rowwise", "the dashboard selects the job by this name"
    assert job["metrics_path"] == "/metrics"


def test_rules_lie_where_prometheus_looks_for_them_in_its_container() -> None:
    compose = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text())
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["prometheus"]["volumes"])
    named = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["rule_files"]
    assert named
    for path in named:
        assert mounts[f"./deploy/prometheus/{path}"] == f"/etc/prometheus/{path}"
        assert (DEPLOY / "prometheus" / path).exists()


def test_every_rule_says_how_urgent_it_is_and_what_to_do_and_has_a_test_that_fires_it() -> None:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    tests = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text())["tests"]
    expected = [(case["alertname"], bool(case["exp_alerts"])) for test in tests for case in test["alert_rule_test"]]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert set(rule["annotations"]) == {"summary", "action"}
        assert {(rule["alert"], True), (rule["alert"], False)} <= set(expected), rule["alert"]


@pytest.mark.parametrize(
    "command",
    [("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")],
)
def test_promtool_finds_nothing_wrong(command: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: scripts/install-debian-packages.sh")
    done = subprocess.run([promtool, *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

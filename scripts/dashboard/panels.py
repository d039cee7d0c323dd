"""The panels of Grafana's dashboard: what an operator looks at, and in which order."""

from __future__ import annotations

from typing import Any

from scripts.dashboard.panel import Panel

__all__ = ["ROWS"]

_OF = '{model=~"$model",instance=~"$instance"}'
_HERE = '{instance=~"$instance"}'
_RATE = "[$__rate_interval]"
_NOT_GOOD = 'code!="200"'


def stat(title: str, query: str, unit: str, about: str, **more: Any) -> Panel:
    """Return a panel of one number."""
    return Panel(
        title=title, queries=[(query, title.lower())], unit=unit, kind="stat", about=about, size=(3, 4), defaults=more
    )


def rate(metric: str, *, by: str = "", more: str = "") -> str:
    """Return the rate of a counter of models, summed."""
    where = _OF if not more else _OF.replace("}", f",{more}}}")
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{where}{_RATE}))"


def quantiles(metric: str) -> list[tuple[str, str]]:
    """Return the quantiles that matter of a histogram, by model."""
    rates = rate(f"{metric}_bucket", by="le, model")
    return [
        (f"histogram_quantile({q}, {rates})", f"{{{{model}}}} {name}")
        for q, name in (("0.5", "median"), ("0.9", "p90"), ("0.99", "p99"))
    ]


def padding(by: str = "") -> str:
    """Return the share of executed rows that only filled a bucket."""
    wasted, useful = rate("rowwise_batch_padding_rows_sum", by=by), rate("rowwise_rows_total", by=by)
    return f"{wasted} / ({wasted} + {useful})"


_WAITING = f"sum by (instance, job, model, version) (rowwise_queue_rows{_OF})"
_PROCESS = "{{instance}} {{process}}"
ROWS: list[tuple[str, list[Panel]]] = [
    (
        "At a glance",
        [
            stat("Ready", f"min(rowwise_ready{_HERE})", "bool_yes_no", "Every active model is warm."),
            stat("Requests", rate("rowwise_requests_total"), "reqps", "Prediction requests each second.", min=0),
            stat(
                "Not answered",
                f"{rate('rowwise_requests_total', more=_NOT_GOOD)} / {rate('rowwise_requests_total')} or vector(0)",
                "percentunit",
                "Share of requests that were refused or failed.",
                min=0,
            ),
            stat(
                "p99",
                f"histogram_quantile(0.99, {rate('rowwise_request_seconds_bucket', by='le')})",
                "s",
                "From admission to the outputs.",
                min=0,
            ),
            stat(
                "Rows in a batch",
                f"{rate('rowwise_rows_total')} / {rate('rowwise_batches_total')}",
                "short",
                "Mean rows of callers in a batch. 1: nothing is batched, as there is no queue.",
                min=0,
                decimals=1,
            ),
            stat("Padding", padding(), "percentunit", "Share of executed rows that only filled a bucket.", min=0),
            stat("Rows waiting", f"sum(rowwise_queue_rows{_OF})", "short", "Rows in queues now.", min=0),
            stat(
                "Memory",
                f"sum(rowwise_process_resident_bytes{_HERE})",
                "bytes",
                "Resident, of all processes; shared pages count for each.",
                min=0,
            ),
        ],
    ),
    (
        "Traffic",
        [
            Panel(
                title="Requests by model",
                queries=[(rate("rowwise_requests_total", by="model"), "{{model}}")],
                unit="reqps",
            ),
            Panel(
                title="Requests by code",
                queries=[(rate("rowwise_requests_total", by="model, code"), "{{code}} {{model}}")],
                unit="reqps",
                about="400 wrong input, 404 unknown model, 429 queue full, 499 caller gone, 503 not ready, 504 late. "
                "No model: the request named none that exists.",
            ),
            Panel(
                title="Refused and failed, by reason",
                queries=[(rate("rowwise_requests_total", by="reason, code", more=_NOT_GOOD), "{{reason}} ({{code}})")],
                unit="reqps",
                about="The class of the error that a caller was told.",
            ),
        ],
    ),
    (
        "Latency",
        [
            Panel(
                title="Time of a request",
                queries=quantiles("rowwise_request_seconds"),
                unit="s",
                about="From admission to the outputs, of those that got them.",
            ),
            Panel(title="Time in the queue", queries=quantiles("rowwise_queue_seconds"), unit="s", about="By request."),
            Panel(title="Time of execution", queries=quantiles("rowwise_compute_seconds"), unit="s", about="By batch."),
        ],
    ),
    (
        "Batches",
        [
            Panel(
                title="Batch sizes",
                queries=[
                    (f"sum by (le) (increase(rowwise_batch_rows_bucket{_OF}{_RATE}))", "{{le}}"),
                ],
                unit="short",
                kind="heatmap",
                about="How many batches of which size ran, padding not counted.",
            ),
            Panel(
                title="Rows in a batch, by model",
                queries=[
                    (
                        f"{rate('rowwise_rows_total', by='model')} / {rate('rowwise_batches_total', by='model')}",
                        "{{model}}",
                    )
                ],
                unit="short",
            ),
            Panel(
                title="Padding, by model",
                queries=[(padding("model"), "{{model}}")],
                unit="percentunit",
                about="Share of executed rows that only filled a bucket.",
            ),
        ],
    ),
    (
        "Queues",
        [
            Panel(
                title="Rows waiting, by version",
                queries=[(f"sum by (model, version) (rowwise_queue_rows{_OF})", "{{model}} {{version}}")],
                unit="short",
            ),
            Panel(
                title="Queue's fill",
                queries=[
                    (
                        f"{_WAITING} / rowwise_queue_limit_rows{_OF}",
                        "rows: {{model}} {{version}}",
                    ),
                    (f"rowwise_queue_bytes{_HERE} / rowwise_queue_limit_bytes{_HERE}", "bytes, all models"),
                ],
                unit="percentunit",
                about="At 100% requests are refused: 429 for the rows of a model, 503 for the bytes of all.",
            ),
            Panel(
                title="Busy",
                queries=[(rate("rowwise_compute_seconds_sum", by="model"), "{{model}}")],
                unit="percentunit",
                about="Share of time in which batches of the model run; more than 100% with several engines.",
            ),
        ],
    ),
    (
        "Models and builds",
        [
            Panel(
                title="Versions by state",
                queries=[(f"sum by (model, state) (rowwise_versions{_OF})", "{{model}} {{state}}")],
                unit="short",
            ),
            Panel(
                title="Active version",
                queries=[(f"max by (model) (rowwise_active_version{_OF})", "{{model}}")],
                unit="short",
                about="A step is a switch or a roll-back.",
            ),
            Panel(
                title="Builds that ended",
                queries=[(f"sum by (result) (increase(rowwise_builds_total{_HERE}[5m]))", "{{result}}")],
                unit="short",
                about="In five minutes, by result.",
                custom={"drawStyle": "bars", "fillOpacity": 60},
            ),
            Panel(
                title="Shadows",
                queries=[
                    (
                        rate("rowwise_shadow_rows_total", by="model, version, result"),
                        "rows {{result}}: {{model}} {{version}}",
                    ),
                    (
                        rate("rowwise_shadow_batches_total", by="model, version, result"),
                        "batches {{result}}: {{model}} {{version}}",
                    ),
                ],
                unit="short",
                about="Each second: rows that agreed and differed, batches that were compared, dropped and failed.",
            ),
            Panel(
                title="Compiled or traced after ready",
                queries=[
                    (f"sum(rowwise_compiled_after_ready{_HERE})", "executables compiled"),
                    (f"sum(rowwise_traced_seconds{_HERE})", "seconds of tracing"),
                ],
                unit="short",
                about="Both stay 0: nothing is compiled or traced for a request.",
            ),
        ],
    ),
    (
        "Processes",
        [
            Panel(
                title="Memory by process", queries=[(f"rowwise_process_resident_bytes{_HERE}", _PROCESS)], unit="bytes"
            ),
            Panel(
                title="Processor time by process",
                queries=[(f"rate(rowwise_process_cpu_seconds_total{_HERE}{_RATE})", _PROCESS)],
                unit="short",
                about="Cores.",
            ),
            Panel(
                title="File descriptors",
                queries=[
                    (
                        f"rowwise_process_open_descriptors{_HERE} / rowwise_process_max_descriptors{_HERE}",
                        _PROCESS,
                    )
                ],
                unit="percentunit",
                about="Open ones, of those that may be.",
            ),
            Panel(title="Threads", queries=[(f"rowwise_process_threads{_HERE}", _PROCESS)], unit="short"),
            Panel(
                title="Age of processes",
                queries=[
                    (f"time() - rowwise_process_start_time_seconds{_HERE}", _PROCESS),
                    (f"rowwise_process_restarts_total{_HERE}", "restarts: " + _PROCESS),
                ],
                unit="s",
                about="A line that falls to nothing was started again.",
            ),
            Panel(
                title="Disk, certificate, audit log",
                queries=[
                    (f"rowwise_store_free_bytes{_HERE} / rowwise_store_size_bytes{_HERE}", "free on the store's disk"),
                    (
                        f"(rowwise_tls_certificate_expiry_seconds{_HERE} - time()) / (30 * 86400)",
                        "certificate, in months of 30 days",
                    ),
                    (f"increase(rowwise_audit_log_failures_total{_HERE}[5m])", "lines that the audit log lacks"),
                ],
                unit="short",
            ),
            Panel(
                title="What runs",
                queries=[
                    (f"rowwise_info{_HERE}", "{{instance}}: {{version}}, TensorFlow {{tensorflow}}, Python {{python}}")
                ],
                unit="short",
                size=(24, 5),
            ),
        ],
    ),
]

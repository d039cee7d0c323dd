"""Options of ``rowwise serve``: what is written down of it."""

from __future__ import annotations

from pathlib import Path

from rowwise.cli.serve_options.option import ServeOption

__all__ = ["LOGS"]

_PANEL = "Logs"

LOGS = (
    ServeOption(
        "audit_log",
        Path,
        "--audit-log",
        "File that gets JSON lines of who changed what, and who was refused. Opened anew on SIGHUP.",
        panel=_PANEL,
        metavar="FILE",
    ),
    ServeOption("console", bool, "--console/--no-console", "A page at / that shows what goes on (yes).", panel=_PANEL),
    ServeOption(
        "log_level", str, "--log-level", "debug, info, warning or error (info).", panel=_PANEL, metavar="LEVEL"
    ),
    ServeOption(
        "log_format",
        str,
        "--log-format",
        "text, or json: one object a line (text).",
        panel=_PANEL,
        metavar="FORMAT",
    ),
    ServeOption(
        "access_log", bool, "--access-log/--no-access-log", "One log line for each request (no).", panel=_PANEL
    ),
    ServeOption(
        "otlp_endpoint", str, "--otlp-endpoint", "Where OpenTelemetry traces go (nowhere).", panel=_PANEL, metavar="URL"
    ),
    ServeOption(
        "trace_share",
        float,
        "--trace-share",
        "Share of requests that are traced, 0 to 1 (1).",
        panel=_PANEL,
        metavar="SHARE",
    ),
)

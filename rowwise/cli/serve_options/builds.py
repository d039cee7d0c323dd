"""Options of ``rowwise serve``: how registrations become models."""

from __future__ import annotations

from rowwise.cli.serve_options.option import ServeOption

__all__ = ["BUILDS"]

_PANEL = "Builds"

BUILDS = (
    ServeOption("build_timeout_s", float, "--build-timeout-s", "Longest build (600).", panel=_PANEL, metavar="SECONDS"),
    ServeOption(
        "build_memory_bytes", int, "--build-memory-bytes", "Memory of one build (8 GiB).", panel=_PANEL, metavar="BYTES"
    ),
    ServeOption(
        "build_disk_bytes", int, "--build-disk-bytes", "Disk of one build (32 GiB).", panel=_PANEL, metavar="BYTES"
    ),
    ServeOption(
        "build_niceness", int, "--build-niceness", "How far builds stand back, 0 to 19 (10).", panel=_PANEL, metavar="N"
    ),
    ServeOption(
        "concurrent_builds", int, "--concurrent-builds", "Builds that run at once (1).", panel=_PANEL, metavar="N"
    ),
    ServeOption(
        "jail",
        str,
        "--jail",
        "How builds are shut in: as far as this machine can, wholly or not at all (auto).",
        panel=_PANEL,
        metavar="auto|required|off",
    ),
    ServeOption(
        "build_user",
        str,
        "--build-user",
        "Who builds where the server is root, by name or number (61000).",
        panel=_PANEL,
        metavar="USER",
    ),
    ServeOption(
        "allow_source",
        bool,
        "--allow-source/--no-source",
        "Whether functions may be registered as source text; it runs in the builder alone (no).",
        panel=_PANEL,
    ),
    ServeOption(
        "allow_unjailed_source",
        bool,
        "--allow-unjailed-source/--jailed-source",
        "Whether it may run even where the jail is not whole (no).",
        panel=_PANEL,
    ),
)

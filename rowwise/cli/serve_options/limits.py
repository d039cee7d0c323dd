"""Options of ``rowwise serve``: what is bounded while it serves."""

from __future__ import annotations

from rowwise.cli.serve_options.option import ServeOption

__all__ = ["LIMITS"]

_PANEL = "Limits"

LIMITS = (
    ServeOption(
        "engines",
        str,
        "--engines",
        "Threads that execute batches, each with the models' variables; auto: one for each accelerator (1).",
        panel=_PANEL,
        metavar="N|auto",
    ),
    ServeOption(
        "batch_limit",
        int,
        "--batch-limit",
        "Most rows in a batch, whatever was compiled; 1: none.",
        panel=_PANEL,
        metavar="N",
    ),
    ServeOption(
        "returning_wait_ms",
        float,
        "--returning-wait-ms",
        "Longest wait of a batch for callers who were just answered (5); 0: none.",
        panel=_PANEL,
        metavar="MS",
    ),
    ServeOption(
        "queue_rows",
        int,
        "--queue-rows",
        "Most rows waiting for one model; more get 429 (4096).",
        panel=_PANEL,
        metavar="N",
    ),
    ServeOption(
        "queue_bytes",
        int,
        "--queue-bytes",
        "Most bytes waiting for one model; more get 429 (256 MiB).",
        panel=_PANEL,
        metavar="N",
    ),
    ServeOption(
        "server_queue_bytes",
        int,
        "--server-queue-bytes",
        "Most bytes waiting for all models; more get 503 (512 MiB).",
        panel=_PANEL,
        metavar="N",
    ),
    ServeOption(
        "max_receiving_bytes",
        int,
        "--max-receiving-bytes",
        "Most bytes of bodies that are being received; more get 503 (512 MiB).",
        panel=_PANEL,
        metavar="N",
    ),
    ServeOption(
        "default_timeout_ms",
        int,
        "--default-timeout-ms",
        "Deadline of a request that names none (30000).",
        panel=_PANEL,
        metavar="MS",
    ),
    ServeOption(
        "max_instances", int, "--max-instances", "Most examples in one request (10000).", panel=_PANEL, metavar="N"
    ),
    ServeOption(
        "max_body_bytes",
        int,
        "--max-body-bytes",
        "Largest request body or gRPC message (64 MiB).",
        panel=_PANEL,
        metavar="BYTES",
    ),
    ServeOption(
        "max_archive_bytes",
        int,
        "--max-archive-bytes",
        "Largest uploaded model (2 GiB).",
        panel=_PANEL,
        metavar="BYTES",
    ),
    ServeOption(
        "grace_s",
        float,
        "--grace-s",
        "Time to finish running requests after SIGTERM (30).",
        panel=_PANEL,
        metavar="SECONDS",
    ),
)

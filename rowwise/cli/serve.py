"""``rowwise serve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from server.settings import Settings

__all__ = ["serve", "settings_from"]

_NETWORK = "Network"
_MODELS = "Models"
_STORE = "Store"
_LIMITS = "Limits"
_BUILDS = "Builds"
_LOGS = "Logs"


def _option(flag: str, help_text: str, *, panel: str, metavar: str | None = None, envvar: str | None = None) -> Any:
    """Return an option without a default of its own: the environment and ``server.settings`` come after it."""
    return typer.Option(flag, help=help_text, rich_help_panel=panel, metavar=metavar, envvar=envvar, show_default=False)


def serve(
    *,
    config: Annotated[
        Path | None,
        _option(
            "--config",
            "TOML file of settings; options and environment outrank it. Read again on SIGHUP.",
            panel=_NETWORK,
            metavar="FILE",
        ),
    ] = None,
    host: Annotated[
        str | None,
        _option("--host", "Address to listen on (127.0.0.1: this machine only).", panel=_NETWORK, metavar="ADDRESS"),
    ] = None,
    port: Annotated[
        int | None, _option("--port", "HTTP port (8000); 0 takes a free one.", panel=_NETWORK, metavar="N")
    ] = None,
    grpc_port: Annotated[
        int | None,
        _option("--grpc-port", "gRPC port (8001); 0: no gRPC.", panel=_NETWORK, metavar="N"),
    ] = None,
    http_workers: Annotated[
        int | None,
        _option(
            "--http-workers",
            "Processes that parse HTTP, beside one that executes; 0: one process does all (0).",
            panel=_NETWORK,
            metavar="N",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        _option(
            "--tls-certificate",
            "Certificate in PEM, with its chain: both ports speak TLS. Read again on SIGHUP.",
            panel=_NETWORK,
            metavar="FILE",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        _option("--tls-key", "Its private key, where that is another file.", panel=_NETWORK, metavar="FILE"),
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        _option(
            "--tls-client-ca",
            "Certificates of authorities; clients need one that was signed by one of them.",
            panel=_NETWORK,
            metavar="FILE",
        ),
    ] = None,
    head_timeout_s: Annotated[
        float | None,
        _option("--head-timeout-s", "Time for a request's head to come (10).", panel=_NETWORK, metavar="SECONDS"),
    ] = None,
    idle_timeout_s: Annotated[
        float | None,
        _option("--idle-timeout-s", "How long an unused connection is kept (75).", panel=_NETWORK, metavar="SECONDS"),
    ] = None,
    write_timeout_s: Annotated[
        float | None,
        _option(
            "--write-timeout-s",
            "Time in which some of a waiting answer must be taken (30).",
            panel=_NETWORK,
            metavar="SECONDS",
        ),
    ] = None,
    max_connections: Annotated[
        int | None,
        _option(
            "--max-connections",
            "Most HTTP connections of a process (as many as file descriptors allow).",
            panel=_NETWORK,
            metavar="N",
        ),
    ] = None,
    token: Annotated[
        str | None,
        _option(
            "--token",
            "Token that may do everything. Without any token, only this machine may manage models. ROWWISE_TOKEN keeps "
            "it out of the process list.",
            panel=_NETWORK,
            metavar="TOKEN",
        ),
    ] = None,
    protect_predict: Annotated[
        bool | None,
        _option(
            "--protect-predict/--open-predict",
            "Whether prediction needs a token too (where there are tokens with rights of their own).",
            panel=_NETWORK,
        ),
    ] = None,
    tokens_file: Annotated[
        Path | None,
        _option(
            "--tokens-file",
            "Tokens with rights of their own: what `rowwise token` writes. Read again when it changes.",
            panel=_NETWORK,
            metavar="FILE",
        ),
    ] = None,
    host_names: Annotated[
        list[str] | None,
        _option(
            "--host-name",
            "Name by which callers know this server; requests for others are refused. Repeat for more.",
            panel=_NETWORK,
            metavar="NAME",
        ),
    ] = None,
    audit_log: Annotated[
        Path | None,
        _option(
            "--audit-log",
            "File that gets JSON lines of who changed what, and who was refused. Opened anew on SIGHUP.",
            panel=_LOGS,
            metavar="FILE",
        ),
    ] = None,
    store: Annotated[
        str | None,
        _option(
            "--store",
            "Directory of the model store (rowwise-store), or a bucket that several servers share: s3://BUCKET/PREFIX.",
            panel=_STORE,
            metavar="DIR|URL",
        ),
    ] = None,
    bucket: Annotated[
        str | None,
        _option(
            "--bucket",
            "The same bucket, where --store names this server's own directory beside it.",
            panel=_STORE,
            metavar="URL",
        ),
    ] = None,
    follow_store: Annotated[
        bool | None,
        _option(
            "--follow-store/--own-store",
            "Whether --store is another server's directory, which is served and never changed (no).",
            panel=_STORE,
        ),
    ] = None,
    follow_s: Annotated[
        float | None,
        _option(
            "--follow-s",
            "Time between looks at a bucket, or a store that is followed (5).",
            panel=_STORE,
            metavar="SECONDS",
        ),
    ] = None,
    verify_store: Annotated[
        bool | None,
        _option(
            "--verify-store/--trust-store",
            "Whether every artifact is read at start and must be what was built (no).",
            panel=_STORE,
        ),
    ] = None,
    keep_versions: Annotated[
        int | None,
        _option(
            "--keep-versions",
            "Versions of a model that are kept besides those in use (all); older ones are deleted.",
            panel=_STORE,
            metavar="N",
        ),
    ] = None,
    max_versions: Annotated[
        int | None, _option("--max-versions", "Most versions of a model; more get 507.", panel=_STORE, metavar="N")
    ] = None,
    max_model_bytes: Annotated[
        int | None,
        _option("--max-model-bytes", "Most bytes of a model's artifacts; more get 507.", panel=_STORE, metavar="BYTES"),
    ] = None,
    max_store_bytes: Annotated[
        int | None,
        _option("--max-store-bytes", "Most bytes of all artifacts; more get 507.", panel=_STORE, metavar="BYTES"),
    ] = None,
    models: Annotated[
        list[str] | None,
        _option(
            "--model",
            "Register this function at start if the store lacks the model. Repeat for more.",
            panel=_MODELS,
            metavar="NAME=MODULE:FUNCTION",
        ),
    ] = None,
    import_packages: Annotated[
        list[str] | None,
        _option(
            "--import-package",
            "Package whose functions may be registered by import path; its code runs in the builder. Repeat for more.",
            panel=_MODELS,
            metavar="PACKAGE",
        ),
    ] = None,
    engines: Annotated[
        str | None,
        _option(
            "--engines",
            "Threads that execute batches, each with the models' variables; auto: one for each accelerator (1).",
            panel=_LIMITS,
            metavar="N|auto",
        ),
    ] = None,
    batch_limit: Annotated[
        int | None,
        _option("--batch-limit", "Most rows in a batch, whatever was compiled; 1: none.", panel=_LIMITS, metavar="N"),
    ] = None,
    invariant: Annotated[
        bool | None,
        _option(
            "--invariant/--no-invariant",
            "Whether the same example gets the same bits at any load, from batch sizes that agree (no).",
            panel=_MODELS,
        ),
    ] = None,
    queue_rows: Annotated[
        int | None,
        _option("--queue-rows", "Most rows waiting for one model; more get 429 (4096).", panel=_LIMITS, metavar="N"),
    ] = None,
    queue_bytes: Annotated[
        int | None,
        _option(
            "--queue-bytes", "Most bytes waiting for one model; more get 429 (256 MiB).", panel=_LIMITS, metavar="N"
        ),
    ] = None,
    server_queue_bytes: Annotated[
        int | None,
        _option(
            "--server-queue-bytes",
            "Most bytes waiting for all models; more get 503 (512 MiB).",
            panel=_LIMITS,
            metavar="N",
        ),
    ] = None,
    max_receiving_bytes: Annotated[
        int | None,
        _option(
            "--max-receiving-bytes",
            "Most bytes of bodies that are being received; more get 503 (512 MiB).",
            panel=_LIMITS,
            metavar="N",
        ),
    ] = None,
    default_timeout_ms: Annotated[
        int | None,
        _option("--default-timeout-ms", "Deadline of a request that names none (30000).", panel=_LIMITS, metavar="MS"),
    ] = None,
    max_instances: Annotated[
        int | None, _option("--max-instances", "Most examples in one request (10000).", panel=_LIMITS, metavar="N")
    ] = None,
    max_body_bytes: Annotated[
        int | None,
        _option("--max-body-bytes", "Largest request body or gRPC message (64 MiB).", panel=_LIMITS, metavar="BYTES"),
    ] = None,
    max_archive_bytes: Annotated[
        int | None, _option("--max-archive-bytes", "Largest uploaded model (2 GiB).", panel=_LIMITS, metavar="BYTES")
    ] = None,
    grace_s: Annotated[
        float | None,
        _option("--grace-s", "Time to finish running requests after SIGTERM (30).", panel=_LIMITS, metavar="SECONDS"),
    ] = None,
    build_timeout_s: Annotated[
        float | None, _option("--build-timeout-s", "Longest build (600).", panel=_BUILDS, metavar="SECONDS")
    ] = None,
    build_memory_bytes: Annotated[
        int | None, _option("--build-memory-bytes", "Memory of one build (8 GiB).", panel=_BUILDS, metavar="BYTES")
    ] = None,
    build_disk_bytes: Annotated[
        int | None, _option("--build-disk-bytes", "Disk of one build (32 GiB).", panel=_BUILDS, metavar="BYTES")
    ] = None,
    build_niceness: Annotated[
        int | None,
        _option("--build-niceness", "How far builds stand back, 0 to 19 (10).", panel=_BUILDS, metavar="N"),
    ] = None,
    concurrent_builds: Annotated[
        int | None, _option("--concurrent-builds", "Builds that run at once (1).", panel=_BUILDS, metavar="N")
    ] = None,
    jail: Annotated[
        str | None,
        _option(
            "--jail",
            "How builds are shut in: as far as this machine can, wholly or not at all (auto).",
            panel=_BUILDS,
            metavar="auto|required|off",
        ),
    ] = None,
    build_user: Annotated[
        str | None,
        _option(
            "--build-user",
            "Who builds where the server is root, by name or number (61000).",
            panel=_BUILDS,
            metavar="USER",
        ),
    ] = None,
    allow_source: Annotated[
        bool | None,
        _option(
            "--allow-source/--no-source",
            "Whether functions may be registered as source text; it runs in the builder alone (no).",
            panel=_BUILDS,
        ),
    ] = None,
    allow_unjailed_source: Annotated[
        bool | None,
        _option(
            "--allow-unjailed-source/--jailed-source",
            "Whether it may run even where the jail is not whole (no).",
            panel=_BUILDS,
        ),
    ] = None,
    log_level: Annotated[
        str | None, _option("--log-level", "debug, info, warning or error (info).", panel=_LOGS, metavar="LEVEL")
    ] = None,
    log_format: Annotated[
        str | None,
        _option("--log-format", "text, or json: one object a line (text).", panel=_LOGS, metavar="FORMAT"),
    ] = None,
    access_log: Annotated[
        bool | None, _option("--access-log/--no-access-log", "One log line for each request (no).", panel=_LOGS)
    ] = None,
    otlp_endpoint: Annotated[
        str | None, _option("--otlp-endpoint", "Where OpenTelemetry traces go (nowhere).", panel=_LOGS, metavar="URL")
    ] = None,
    trace_share: Annotated[
        float | None,
        _option("--trace-share", "Share of requests that are traced, 0 to 1 (1).", panel=_LOGS, metavar="SHARE"),
    ] = None,
) -> None:
    """Run the server until it is told to stop.

    Every option can also be set in the environment: ROWWISE_ and its name, such as ROWWISE_QUEUE_ROWS.
    SIGTERM and Ctrl-C stop it gently: requests that run or wait are answered first.

    [bold]Examples[/bold]

        rowwise serve

        rowwise serve --store /var/lib/rowwise --host 0.0.0.0 --port 80

        rowwise serve --model digits=models.digits:predict --import-package models
    """
    settings = settings_from(locals())
    from server.tensorflow_notices import quieten

    quieten()
    if settings.http_workers:
        from server.supervise.supervisor import supervise as run
    else:
        from server.app import serve as run

    raise typer.Exit(run(settings))


def settings_from(options: dict[str, Any]) -> Settings:
    """Build the server's settings from the options that were given; the environment and defaults fill the rest.

    Errors: typer.BadParameter that names the option; typer.Exit(1) if this installation has no server.
    """
    try:
        from pydantic import ValidationError

        from server.settings import Settings
    except ModuleNotFoundError as error:
        typer.echo(f"error: the server is not part of this installation (no module {error.name!r})", err=True)
        raise typer.Exit(1) from error
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
        if value is not None and value != []
    }
    try:
        return Settings.read(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        hint = f"--{name.replace('_', '-')} / ROWWISE_{name.upper()}"
        raise typer.BadParameter(f"{first['msg']}, got {first['input']!r}", param_hint=hint) from error
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--config / ROWWISE_CONFIG") from error

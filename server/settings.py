"""Every setting of the server, in one value that is built at the composition root.

A setting comes from the command line, else from the environment (``ROWWISE_`` and its name in capitals), else from the
file that ``config`` names, else from its default here. Nobody else reads the environment. The file is TOML with the
names of this class as its keys; a table ``client`` in it is the command line's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict

from server.rights.entry import TokenEntry

__all__ = ["CHANGEABLE", "Settings"]

#: What SIGHUP changes in a server that runs. The others are part of how it was put together.
CHANGEABLE = frozenset(
    {
        "access_log",
        "build_disk_bytes",
        "build_memory_bytes",
        "build_niceness",
        "build_timeout_s",
        "default_timeout_ms",
        "grace_s",
        "head_timeout_s",
        "host_names",
        "keep_versions",
        "log_level",
        "max_archive_bytes",
        "max_body_bytes",
        "max_instances",
        "max_model_bytes",
        "max_receiving_bytes",
        "max_store_bytes",
        "max_versions",
        "protect_predict",
        "queue_rows",
        "token",
        "tokens",
        "tokens_file",
        "write_timeout_s",
    }
)

_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")

_MIB = 2**20


class Settings(BaseSettings):
    """Settings of one server process. Each says its meaning, unit and trade-off."""

    model_config = SettingsConfigDict(env_prefix="ROWWISE_", env_ignore_empty=True, frozen=True, extra="forbid")

    #: The flags of the command line, which outrank what is read again.
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    #: TOML file of settings, read at start and again on SIGHUP. Environment and command line outrank it.
    config: Path | None = None
    #: Address to listen on. Loopback by default: other machines can't reach it until you say so.
    host: str = "127.0.0.1"
    #: HTTP port; 0 takes a free one and prints it.
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    #: gRPC port, on the same address; 0 turns gRPC off.
    grpc_port: Annotated[int, Field(ge=0, le=65_535)] = 8001
    #: Processes that parse HTTP, on one port, beside one that executes; 0: one process does all. They pay where parsing
    #: is what limits, and there are cores for them.
    http_workers: Annotated[int, Field(ge=0, le=64)] = 0
    #: The server's certificate in PEM, with its chain after it: both ports speak TLS (1.2 or 1.3). None: in the clear.
    #: Read again on SIGHUP.
    tls_certificate: Path | None = None
    #: Its private key in PEM, not encrypted; None: it is in the same file.
    tls_key: Path | None = None
    #: Certificates of the authorities whose clients are let in, in PEM (mutual TLS). None: clients need no certificate.
    tls_client_ca: Path | None = None
    #: Directory of the model store. Created if missing.
    store: Path = Path("rowwise-store")
    #: Bucket that several servers share as their store, s3://BUCKET/PREFIX; ``store`` is then a directory of this
    #: server's own. `--store s3://...` says the same. Endpoint, region and credentials are the usual AWS_... variables.
    bucket: Annotated[str, Field(pattern=r"^s3://[^/]+")] | None = None
    #: True: ``store`` is another server's directory, which is read where it lies and never changed: what is activated
    #: and labelled there is served here. Any number of servers may follow one. Changes are refused here (503).
    follow_store: bool = False
    #: Seconds between looks at a bucket, or at a directory that is followed, for what other servers have changed. Each
    #: look at a bucket costs a few requests.
    follow_s: Annotated[float, Field(gt=0)] = 5.0
    #: True: every file of every artifact is read at start, and a version that is not what was built is not served. It
    #: takes a second for a gigabyte; without it files must be there with their sizes.
    verify_store: bool = False
    #: Built versions of a model that are kept, the newest, besides those that are active, labelled, loaded or on their
    #: way; as many that failed are. Older ones are deleted after each switch and build. None: all are kept.
    keep_versions: Annotated[int, Field(ge=1)] | None = None
    #: Most versions of a model, those that failed too. More: 507.
    max_versions: Annotated[int, Field(ge=1)] | None = None
    #: Most bytes on disk of a model's artifacts. What its versions share counts once. More: 507, or a build that fails.
    max_model_bytes: Annotated[int, Field(ge=1)] | None = None
    #: Most bytes on disk of all artifacts. More: the same.
    max_store_bytes: Annotated[int, Field(ge=1)] | None = None
    #: Token that may do everything. Without any token, management answers loopback peers only.
    token: Annotated[SecretStr, Field(min_length=1)] | None = None
    #: TOML file of tokens with rights of their own, kept by their hashes: what ``rowwise token`` writes. Read again
    #: when it changes, and on SIGHUP.
    tokens_file: Path | None = None
    #: More of them: tables in the settings' file, or a list in JSON in the environment.
    tokens: tuple[TokenEntry, ...] = ()
    #: True: prediction needs a token too. None: it does where there are tokens with rights of their own.
    protect_predict: bool | None = None
    #: Host names by which callers know this server, comma-separated, besides those of loopback. Where they are given, a
    #: request for another is refused, predictions too; without a token they are what management goes by.
    host_names: Annotated[tuple[str, ...], NoDecode] = ()
    #: File that gets a line of JSON before and after every change of models, and for who was refused. None: there is no
    #: such log.
    audit_log: Path | None = None
    #: Models to register at start if the store lacks them: NAME=MODULE:FUNCTION.
    models: Annotated[tuple[str, ...], NoDecode] = ()
    #: Packages whose functions may be registered by import path. Importing runs code of that package in the builder.
    import_packages: Annotated[tuple[str, ...], NoDecode] = ()

    #: Largest request body or gRPC message, bytes. A larger body: 413 before it is read.
    max_body_bytes: Annotated[int, Field(ge=1)] = 64 * _MIB
    #: Most bytes of request bodies that are being received, of all callers together. More: 503. Callers who send large
    #: bodies slowly make the server hold them.
    max_receiving_bytes: Annotated[int, Field(ge=1)] = 512 * _MIB
    #: Largest uploaded archive, bytes.
    max_archive_bytes: Annotated[int, Field(ge=1)] = 2048 * _MIB
    #: Most examples in one request.
    max_instances: Annotated[int, Field(ge=1)] = 10_000
    #: Most rows waiting for one model. More: 429. Longer queues only add waiting when the model is the limit.
    queue_rows: Annotated[int, Field(ge=1)] = 4_096
    #: Most bytes of decoded examples waiting for one model. More: 429.
    queue_bytes: Annotated[int, Field(ge=1)] = 256 * _MIB
    #: Most bytes of decoded examples waiting for all models together: what bounds the server's memory. More: 503.
    server_queue_bytes: Annotated[int, Field(ge=1)] = 512 * _MIB
    #: Deadline of a request that names none, milliseconds, from its headers to its answer. Its body has as long.
    default_timeout_ms: Annotated[int, Field(ge=1)] = 30_000
    #: Seconds in which the head of a request must come, from its first byte or the connection's start. Past it: 408.
    head_timeout_s: Annotated[float, Field(gt=0)] = 10.0
    #: Seconds for which an HTTP connection is kept that nobody uses. Longer than clients and load balancers keep theirs
    #: (60 is common), as they send into a connection that is being closed otherwise.
    idle_timeout_s: Annotated[float, Field(gt=0)] = 75.0
    #: Seconds in which a caller must take some of an answer that waits for it (1 KiB each); else it is cut off.
    write_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    #: Most HTTP connections of a process, TLS handshakes too; None: as many as file descriptors allow. Past it those
    #: that nobody uses are closed first; if all are in use, newcomers get 503, and answers to health probes.
    max_connections: Annotated[int, Field(ge=1)] | None = None
    #: Longest that a batch waits for callers who were just answered, milliseconds; 0: never. It waits only for those
    #: who have asked again at once before, and only while a shared batch saves more than that takes. Behind workers
    #: none waits: the engine does not see who is back.
    returning_wait_ms: Annotated[float, Field(ge=0, le=1000)] = 5.0
    #: Upper bound on the rows of a batch, whatever was compiled; None has no bound. 1 turns batching off.
    batch_limit: Annotated[int, Field(ge=1)] | None = None
    #: Threads that execute batches, each with sessions and a copy of the variables of its own; "auto" is one for each
    #: accelerator that TensorFlow lists, and one where there is none.
    engines: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = 1
    #: True: every model is served so that the same example gets the same bits at any load, from buckets that agree.
    #: Costs what the other buckets would gain; each certificate says how much.
    invariant: bool = False
    #: Seconds that running and queued requests have to finish after SIGTERM.
    grace_s: Annotated[float, Field(ge=0)] = 30.0

    #: Wall-clock limit of one build, seconds.
    build_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    #: Memory limit of one build (resident), bytes.
    build_memory_bytes: Annotated[int, Field(ge=64 * _MIB)] = 8192 * _MIB
    #: Disk limit of one build, bytes: what it unpacks, its temporary files and what it makes of the model.
    build_disk_bytes: Annotated[int, Field(ge=64 * _MIB)] = 32_768 * _MIB
    #: How far builds stand back for who needs the processor too, from 0 (not at all) to 19; 10 is about a tenth of the
    #: time of a serving thread on the same core. Higher is felt less by callers, and takes longer on a busy machine.
    build_niceness: Annotated[int, Field(ge=0, le=19)] = 10
    #: Builds that run at once; more wait their turn.
    concurrent_builds: Annotated[int, Field(ge=1)] = 1
    #: How builds are shut in. "auto": as far as this machine can, which the log and GET /v1/status say. "required":
    #: whole, or nothing is built. "off": not at all; whoever may register can then do what the server can.
    jail: Literal["auto", "required", "off"] = "auto"
    #: User (name or number) that builds run as where the server is root; None: a number that is nobody's, 61000.
    build_user: str | None = None
    #: True: functions may be registered as source text, which is run in the builder alone.
    allow_source: bool = False
    #: True: source text is run even where the jail is not whole. For where everybody who may register is trusted.
    allow_unjailed_source: bool = False

    #: True: there is a page at ``/`` that shows what the server does. What it shows and changes asks for rights as the
    #: API does; without a token it may do what programs of this machine may.
    console: bool = True
    #: Lowest level that is logged: debug, info, warning, error.
    log_level: str = "info"
    #: Form of the log: lines of text, or one JSON object a line, for what collects logs.
    log_format: Literal["text", "json"] = "text"
    #: True: one log line for each request.
    access_log: bool = False
    #: URL that takes OpenTelemetry traces (OTLP over HTTP), such as http://127.0.0.1:4318/v1/traces. None: no traces.
    otlp_endpoint: str | None = None
    #: Share of the requests without a traceparent that are traced, from 0 to 1.
    trace_share: Annotated[float, Field(ge=0, le=1)] = 1.0

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Settings:
        """Read file and environment under the flags that were given.

        Errors: ValidationError; ValueError that names the file, if it can't be read or is no TOML.
        """
        environment = EnvSettingsSource(cls)()
        path = given.get("config", environment.get("config"))
        settings = cls(**{**({} if path is None else _file(Path(path))), **environment, **given})
        settings._given = dict(given)
        return settings

    def reread(self) -> Settings:
        """Read file and environment again, under the same flags. Errors: ValueError, with a sentence for all faults."""
        try:
            return self.read(self._given)
        except ValidationError as error:
            # Without what was found there: one of them is the token.
            faults = error.errors(include_url=False, include_input=False, include_context=False)
            told = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults]
            raise ValueError("; ".join(told)) from None

    @model_validator(mode="before")
    @classmethod
    def _store_in_a_bucket(cls, values: Any) -> Any:
        """Take ``store="s3://..."`` for the bucket that it names."""
        if isinstance(values, dict) and str(values.get("store", "")).startswith("s3://"):
            values = {**values, "bucket": values["store"]}
            del values["store"]
        return values

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.lower() not in _LOG_LEVELS:
            raise ValueError(f"expected one of {', '.join(_LOG_LEVELS)}")
        return value.lower()

    @field_validator("models", "import_packages", "host_names", mode="before")
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        return tuple(part for part in value.split(",") if part) if isinstance(value, str) else value


def _file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"the settings in {str(path)!r} can't be read: {reason}") from None
    if "config" in values:
        raise ValueError(f"the settings in {str(path)!r} name another file: 'config' belongs in the command line")
    # A person's commands may have theirs in the same file: rowwise/cli/client_settings.py.
    return {name: value for name, value in values.items() if name != "client"}

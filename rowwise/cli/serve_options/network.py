"""Options of ``rowwise serve``: where it listens, to whom it answers."""

from __future__ import annotations

from pathlib import Path

from rowwise.cli.serve_options.option import ServeOption

__all__ = ["NETWORK"]

_PANEL = "Network"

NETWORK = (
    ServeOption(
        "config",
        Path,
        "--config",
        "TOML file of settings; options and environment outrank it. Read again on SIGHUP.",
        panel=_PANEL,
        metavar="FILE",
    ),
    ServeOption(
        "host", str, "--host", "Address to listen on (127.0.0.1: this machine only).", panel=_PANEL, metavar="ADDRESS"
    ),
    ServeOption("port", int, "--port", "HTTP port (8000); 0 takes a free one.", panel=_PANEL, metavar="N"),
    ServeOption("grpc_port", int, "--grpc-port", "gRPC port (8001); 0: no gRPC.", panel=_PANEL, metavar="N"),
    ServeOption(
        "http_workers",
        int,
        "--http-workers",
        "Processes that parse HTTP, beside one that executes; 0: one process does all (0).",
        panel=_PANEL,
        metavar="N",
    ),
    ServeOption(
        "tls_certificate",
        Path,
        "--tls-certificate",
        "Certificate in PEM, with its chain: both ports speak TLS. Read again on SIGHUP.",
        panel=_PANEL,
        metavar="FILE",
    ),
    ServeOption(
        "tls_key", Path, "--tls-key", "Its private key, where that is another file.", panel=_PANEL, metavar="FILE"
    ),
    ServeOption(
        "tls_client_ca",
        Path,
        "--tls-client-ca",
        "Certificates of authorities; clients need one that was signed by one of them.",
        panel=_PANEL,
        metavar="FILE",
    ),
    ServeOption(
        "head_timeout_s",
        float,
        "--head-timeout-s",
        "Time for a request's head to come (10).",
        panel=_PANEL,
        metavar="SECONDS",
    ),
    ServeOption(
        "idle_timeout_s",
        float,
        "--idle-timeout-s",
        "How long an unused connection is kept (75).",
        panel=_PANEL,
        metavar="SECONDS",
    ),
    ServeOption(
        "write_timeout_s",
        float,
        "--write-timeout-s",
        "Time in which some of a waiting answer must be taken (30).",
        panel=_PANEL,
        metavar="SECONDS",
    ),
    ServeOption(
        "max_connections",
        int,
        "--max-connections",
        "Most HTTP connections of a process (as many as file descriptors allow).",
        panel=_PANEL,
        metavar="N",
    ),
    ServeOption(
        "token",
        str,
        "--token",
        "Token that may do everything. Without any token, only this machine may manage models. ROWWISE_TOKEN keeps it "
        "out of the process list.",
        panel=_PANEL,
        metavar="TOKEN",
    ),
    ServeOption(
        "protect_predict",
        bool,
        "--protect-predict/--open-predict",
        "Whether prediction needs a token too (where there are tokens with rights of their own).",
        panel=_PANEL,
    ),
    ServeOption(
        "tokens_file",
        Path,
        "--tokens-file",
        "Tokens with rights of their own: what `rowwise token` writes. Read again when it changes.",
        panel=_PANEL,
        metavar="FILE",
    ),
    ServeOption(
        "host_names",
        list[str],
        "--host-name",
        "Name by which callers know this server; requests for others are refused. Repeat for more.",
        panel=_PANEL,
        metavar="NAME",
    ),
)

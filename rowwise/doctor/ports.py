"""The ports that the server is to listen on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rowwise.doctor.finding import Finding, fine, wrong
from server.http_listening import reserve
from server.settings import Settings

__all__ = ["listener_on", "ports_findings"]

_LISTENS = "0A"


def ports_findings(settings: Settings, *, is_served: bool) -> Iterator[Finding]:
    """Yield which can't be had, by trying. ``is_served``: a server is meant to have them."""
    if is_served:
        yield fine("ports", f"{settings.host}:{settings.port} is the running server's")
        return
    if settings.port and settings.port == settings.grpc_port:
        yield wrong(
            "ports",
            f"HTTP and gRPC are both to listen on port {settings.port}",
            why="the server does not start",
            to_do="choose another --port or --grpc-port; --grpc-port 0 turns gRPC off",
        )
        return
    for option, port in (("--port", settings.port), ("--grpc-port", settings.grpc_port)):
        if port == 0:
            continue
        try:
            reserve(settings.host, port, option=option).close()
        except (ValueError, OSError) as error:
            holder = listener_on(port)
            yield wrong(
                "ports",
                f"{error}" + (f" ({holder} listens there)" if holder else ""),
                why="the server does not start",
                to_do=f"stop what listens there, or choose another {option}; if it is your server, ask it: "
                "rowwise doctor --url URL",
            )
        else:
            yield fine("ports", f"{settings.host}:{port} is free")


def listener_on(port: int) -> str:
    """Return the process that listens on a port, as far as this user may see; empty if it is not seen."""
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        rows = table.read_text().splitlines()[1:] if table.is_file() else []
        for fields in map(str.split, rows):
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").iterdir():
        if inodes and process.name.isdigit() and inodes & set(_open_files(process)):
            return f"process {process.name} ({_name_of(process)})"
    return ""


def _open_files(process: Path) -> Iterator[str]:
    try:
        for descriptor in (process / "fd").iterdir():
            yield os.readlink(descriptor)  # noqa: PTH115 - what it leads to is no path
    except OSError:
        return


def _name_of(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "unknown"
    return " ".join(word.decode(errors="replace") for word in words[:4] if word)[:80]

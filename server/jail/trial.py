"""What is run in a jail to see what it keeps: it tries to get out, and prints what it could do.

Run as a script inside. A promise is kept if what it forbids was refused; nothing is taken for granted because the
kernel has the means for it.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["PROMISES", "broken_promises"]

#: What a jail keeps from a builder, or keeps a builder from, in the order in which they are told.
PROMISES = {
    "files": "it sees only what it needs, and writes only what it builds",
    "network": "it reaches nobody, not even this machine",
    "processes": "it sees, stops and reads no process but its own",
    "user": "it is not root",
    "privileges": "it has no capabilities and can gain none",
    "system_calls": "it can't make those that only harm",
    "limits": "processor time, memory, files and processes are bounded",
}


def broken_promises(asked: Mapping[str, Any]) -> dict[str, str]:
    """Return a sentence for each promise that does not hold in this process.

    Errors: OSError for a file that is needed and can't be read.
    """
    for path in asked["needed"]:
        os.close(os.open(path, os.O_RDONLY))
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    found = {
        "files": _files(asked["secret"]),
        "network": _network(asked["network"]),
        "processes": _processes(asked["pid"], asked["processes"]),
        "user": "it runs as root" if os.getuid() == 0 else "",
        "privileges": _privileges(status),
        "system_calls": "" if status.get("Seccomp", "0").strip() == "2" else "no filter is in force",
        "limits": _limits(asked["limits"]),
    }
    return {name: sentence for name, sentence in found.items() if sentence}


def _files(secret: str) -> str:
    """``secret`` is a file that anybody may read, in a directory that anybody may write."""
    for path, flags in ((secret, os.O_RDONLY), (secret + "-too", os.O_WRONLY | os.O_CREAT)):
        try:
            os.close(os.open(path, flags, 0o600))
        except OSError:
            continue
        return f"it could {'read' if flags == os.O_RDONLY else 'write'} a file that is none of its own"
    return ""


def _network(servers: str) -> str:
    if _namespace("net") != servers:
        return ""
    try:
        socket.socket().close()
    except OSError:
        return ""
    return "it shares the machine's network"


def _processes(server: int, servers: str) -> str:
    if _namespace("pid") != servers:
        return ""
    try:
        os.kill(server, 0)
    except OSError:
        pass
    else:
        return "it may send signals to the server"
    try:
        Path(f"/proc/{server}/environ").read_bytes()
    except OSError:
        return ""
    return "it may read the server's environment"


def _privileges(status: Mapping[str, str]) -> str:
    if status.get("NoNewPrivs", "0").strip() != "1":
        return "no_new_privs is not set"
    held = [name for name in ("CapEff", "CapPrm", "CapInh", "CapAmb") if int(status.get(name, "0"), 16)]
    return f"it has capabilities ({', '.join(held)})" if held else ""


def _limits(limits: Mapping[str, int]) -> str:
    missing = [name for name, most in limits.items() if _soft(name) > most or _soft(name) < 0]
    if missing:
        return f"not set: {', '.join(missing)}"
    # The kernel lets this one user have as many as it likes.
    return "root's processes are not counted" if os.getuid() == 0 else ""


def _soft(name: str) -> int:
    return resource.getrlimit(getattr(resource, name))[0]


def _namespace(kind: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115
    except OSError:
        return "unknown"


if __name__ == "__main__":
    print(json.dumps(broken_promises(json.loads(sys.argv[1]))))  # noqa: T201 - what it is run for

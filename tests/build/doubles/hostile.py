"""A worker that tries to get out of its jail: what it got goes into ``found.json``, what it must not do is left to do.

Its first argument says what it tries, the second is JSON of where: ``{"name": path or number}``.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from server.build.request import WorkerChannel

_PTRACE_ATTACH = 16
_CLONE_NEWUSER = 0x10000000
_MIB = 2**20


def tried(attempt: Callable[[], Any]) -> str:
    """Return "refused: why", or "got: what"."""
    try:
        return f"got: {attempt()!r}"
    except Exception as error:  # noqa: BLE001 - whatever it is that refuses
        return f"refused: {type(error).__name__}: {error}"


def called(number: int, *arguments: Any) -> Any:
    """Call a function of libc's, and return what it says. Errors: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(number, *arguments) if number else None
    if result is None or result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def connected(family: socket.AddressFamily, kind: socket.SocketKind, address: Any) -> str:
    with socket.socket(family, kind) as made:
        made.settimeout(2)
        made.connect(address)
        made.send(b"hello")
        return "sent"


def look_around(where: dict[str, Any]) -> dict[str, str]:
    pid = where["server_pid"]
    syscalls = {"ptrace": 101, "unshare": 272} if os.uname().machine == "x86_64" else {"ptrace": 117, "unshare": 97}
    found = {f"read {name}": tried(Path(path).read_text) for name, path in where["secrets"].items()}
    found |= {
        f"write {name}": tried(lambda path=path: Path(path).write_text("x")) for name, path in where["others"].items()
    }
    found |= {
        "list store": tried(lambda: list(Path(where["store"]).iterdir())),
        "list root": tried(lambda: list(Path("/root").iterdir())),
        "tcp": tried(lambda: connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", where["port"]))),
        "udp": tried(lambda: connected(socket.AF_INET, socket.SOCK_DGRAM, ("203.0.113.9", 53))),
        "abstract socket": tried(lambda: connected(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + where["abstract"])),
        "environ of the server": tried(Path(f"/proc/{pid}/environ").read_bytes),
        "command of the server": tried(Path(f"/proc/{pid}/cmdline").read_bytes),
        "signal to the server": tried(lambda: os.kill(pid, 0)),
        "ptrace of the server": tried(lambda: called(syscalls["ptrace"], _PTRACE_ATTACH, pid, 0, 0)),
        "a user namespace": tried(lambda: called(syscalls["unshare"], _CLONE_NEWUSER)),
        "setuid(0)": tried(lambda: (os.setuid(0), os.getuid())) if os.getuid() else "refused: it is root",
        "a program that is root": tried(lambda: subprocess.check_output([where["as_root"], "-u"])),
        "100 GB": tried(lambda: len(bytearray(100 * 2**30))),
        "a file in memory": tried(lambda: os.memfd_create("hidden")),
        "more open files": tried(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (2**20, 2**20))),
        "source code": tried(lambda: Path(where["code"]).open("a").close()),
    }  # fmt: skip
    found["descriptors"] = json.dumps(
        sorted(str(Path(f"/proc/self/fd/{n}").readlink()).split(":")[0] for n in _open_descriptors())
    )
    found["environment"] = json.dumps(sorted(os.environ))
    found["status"] = Path("/proc/self/status").read_text()
    found["processes"] = json.dumps(_processes())
    return found


def _open_descriptors() -> list[int]:
    found = []
    for number in range(256):
        with suppress(OSError):
            os.fstat(number)
            found.append(number)
    return found


def _processes() -> list[str]:
    try:
        return [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]
    except OSError:
        return []


def fork_bomb(output: Path) -> None:
    """Every process makes more, which stay; the count is that of those that there were."""
    n = 0
    try:
        while n < 5_000:
            if os.fork() == 0:
                time.sleep(600)
            n += 1
    except OSError as error:
        (output / "found.json").write_text(json.dumps({"forks": n, "error": str(error)}))
    else:
        (output / "found.json").write_text(json.dumps({"forks": n, "error": ""}))


def main(behaviour: str, where: dict[str, Any], arguments: list[str]) -> int:
    channel = WorkerChannel.open(arguments, sys.stdin.buffer)
    output = channel.request.output_dir
    match behaviour:
        case "look":
            (output / "found.json").write_text(json.dumps(look_around(where)))
            channel.done()
        case "fork-bomb":
            fork_bomb(output)
            channel.done()
        case "fill-the-disk":
            for number in range(10_000):
                (output / f"filler-{number}").write_bytes(b"x" * _MIB)
                time.sleep(0.001)
        case "one-large-file":
            with (output / "large").open("wb") as file:
                (output / "found.json").write_text(json.dumps(tried(lambda: file.truncate(2**40))))
            channel.done()
        case "fill-the-memory-of-files":
            places = ("/tmp", "/dev/shm", "/dev", "/")
            filled = {place: tried(lambda place=place: _fill(Path(place))) for place in places}
            (output / "found.json").write_text(json.dumps(filled))
            channel.done()
        case "links":
            (output / "link").symlink_to(where["secrets"]["token"])
            (output / "program").write_text("#!/bin/sh")
            (output / "program").chmod(0o6755)
            channel.done()
        case _:
            raise ValueError(behaviour)
    return 0


def _fill(directory: Path) -> int:
    with (directory / "filler").open("wb") as file:
        for number in range(1_000):
            file.write(b"x" * _MIB)
            if number == 999:
                return 1_000
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]))

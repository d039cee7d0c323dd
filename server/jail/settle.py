"""The last thing before a jailed command: take the limits, give up what is left of power, become the command.

Run as a script, ``python -I -S settle.py RESTRICTIONS COMMAND...``, by bubblewrap inside of its namespaces, or in its
place. The order is that in which each step still may be done: limits while it is root, then another user, then no new
privileges, then what only takes away.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Isolated: nothing but what is named here is on the path.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from server.jail.landlock import restrict_files
from server.jail.namespaces import enter_namespaces
from server.jail.system_calls import filter_system_calls

__all__ = ["main"]

_PR_SET_NO_NEW_PRIVS = 38
_PR_CAPBSET_DROP = 24
_PR_SET_PDEATHSIG = 1
#: capset(2): its numbers, and the version of its header that has 64 capabilities.
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION = 0x20080522


def main(arguments: list[str]) -> None:
    """Become the command, restricted. Does not return. Errors: OSError for what can't be had; nothing is left out."""
    restrictions: dict[str, Any] = json.loads(arguments[0])
    command = arguments[1:]
    # The directories that mounts are on are made by now, or are now: another user has to get through them.
    os.umask(0o022)
    if restrictions["namespaces"]:
        enter_namespaces(restrictions["namespaces"])
    for name, value in restrictions["limits"].items():
        _limit(getattr(resource, name), value)
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getppid()
    _drop_bounding_set(libc)
    user = restrictions["user"]
    if user:
        os.setgroups(user["groups"])
        os.setresgid(user["gid"], user["gid"], user["gid"])
        os.setresuid(user["uid"], user["uid"], user["uid"])
        # Becoming another user has taken this back.
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
    os.chdir(restrictions["directory"])
    os.umask(0o077)
    _drop_capabilities(libc)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs could not be set")
    if restrictions["files"] is not None:
        restrict_files(map(tuple, restrictions["files"]))
    if restrictions["filter"]:
        filter_system_calls(no_sockets=restrictions["no_sockets"])
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (most, most))


def _drop_bounding_set(libc: ctypes.CDLL) -> None:
    """Capabilities that no program can give back. Where that may not be done, no_new_privs says the same."""
    capability = 0
    while libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Effective, permitted and inheritable ones; the ambient ones go with them."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    if libc.syscall(_CAPSET[os.uname().machine], header, none) != 0:
        raise OSError(ctypes.get_errno(), "the capabilities could not be dropped")


if __name__ == "__main__":
    main(sys.argv[1:])

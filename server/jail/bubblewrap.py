"""Bubblewrap's arguments for a view: namespaces of its own for everything, and nothing in them but what is shown.

As root it mounts as root, so that directories that only root may enter (a Python below ``/root``, a store of mode 0700)
can be shown to another user; ``settle`` then becomes that user. As anybody else it makes a user namespace.

Source: bwrap(1), release 0.8, that of Debian 12.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from server.jail.view import Kind, Step

__all__ = ["bubblewrap"]

#: Memory that no limit of the process counts, so it is little. Temporary files have a directory on disk.
_TMPFS_BYTES = 64 * 2**20

#: What ``settle`` needs to become another user for good; it gives them up by that.
_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")

_FLAGS = {Kind.READABLE: "--ro-bind", Kind.WRITABLE: "--bind", Kind.DEVICE: "--dev-bind"}


def bubblewrap(program: str, steps: Sequence[Step], *, is_root: bool) -> list[str]:
    """Return the command line that a jailed command is appended to, which is started in ``/``."""
    size = str(_TMPFS_BYTES)
    arguments = [program, "--die-with-parent", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", "--hostname", "jail"]
    if is_root:
        arguments += ["--cap-drop", "ALL"]
        for capability in _CAPABILITIES:
            arguments += ["--cap-add", capability]
    else:
        arguments += ["--unshare-user", "--disable-userns"]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    arguments += ["--size", size, "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108 - its own
    arguments += ["--size", size, "--perms", "1777", "--tmpfs", "/tmp"]  # noqa: S108 - its own
    closed = ["/dev", "/"]
    made = {Path("/")}
    for step in steps:
        path = str(step.path)
        for parent in reversed(step.path.parents):
            if parent not in made:
                # Else it makes them so that only root may enter.
                arguments += ["--dir", str(parent)]
        made |= {*step.path.parents, step.path}
        if step.kind is Kind.LISTED:
            arguments += ["--dir", path]
        elif step.kind is Kind.LINK:
            arguments += ["--symlink", step.target, path]
        elif step.kind is not Kind.HIDDEN:
            arguments += [_FLAGS[step.kind], path, path]
        elif step.path.is_dir():
            arguments += ["--size", size, "--perms", "0755", "--tmpfs", path]
            closed.insert(0, path)
        else:
            # A device on a mount without devices: it can't even be opened.
            arguments += ["--ro-bind", os.devnull, path]
    for path in closed:
        arguments += ["--remount-ro", path]
    return [*arguments, "--chdir", "/", "--"]

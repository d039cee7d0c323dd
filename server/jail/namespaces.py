"""Namespaces of a process's own, without bubblewrap: the same view by the same steps, put together here.

What mounts is ``steps``, in order, on an empty file system in memory, which then becomes the root. As root this takes
CAP_SYS_ADMIN; as anybody else a user namespace, which some kernels and most containers don't give.

The process that enters stays outside as the parent, and ends as its child does; the child is the first process of its
namespace, so the kernel ends all others with it. It starts one more, which goes on, and waits for who is left to it.

Source: namespaces(7), user_namespaces(7), pid_namespaces(7), mount(2), pivot_root(2).
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from server.jail.view import Kind, Step

__all__ = ["description", "enter_namespaces"]

_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000

_RDONLY, _NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_PR_SET_PDEATHSIG = 1

_TMPFS_BYTES = 64 * 2**20
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
#: Where the new root is put together: any directory that is there everywhere.
_SCAFFOLD = Path("/tmp")  # noqa: S108 - nothing is written to it


def description(steps: Sequence[Step], *, is_root: bool) -> dict[str, Any]:
    """Return what ``enter_namespaces`` takes, in plain JSON types."""
    return {
        "steps": [[str(step.path), int(step.kind), step.target] for step in steps],
        "is_root": is_root,
    }


def enter_namespaces(described: dict[str, Any]) -> None:
    """Go on in new namespaces that show only what is described. Only the process in them returns from this.

    Errors: OSError where the kernel does not give them.
    """
    uid, gid = os.getuid(), os.getgid()
    flags = _NEWNS | _NEWCGROUP | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
    _checked(_libc().unshare(flags | (0 if described["is_root"] else _NEWUSER)), "unshare")
    if not described["is_root"]:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    child = os.fork()
    if child:
        _end_like(child)
    _die_with_parent()
    _mount_all([(Path(path), Kind(kind), target) for path, kind, target in described["steps"]])
    goes_on = os.fork()
    if goes_on:
        _end_with(goes_on)
    _die_with_parent()


def _mount_all(steps: Iterable[tuple[Path, Kind, str]]) -> None:
    """Put the view together beside the old root, where everything can still be found, and make it the root."""
    _mount("none", "/", "", _REC | _PRIVATE)
    _tmpfs(_SCAFFOLD, "0755")
    (_SCAFFOLD / "old").mkdir()
    _pivot_root(_SCAFFOLD, _SCAFFOLD / "old")
    old, root = Path("/old"), Path("/new")
    _tmpfs(_made(root), "0755")
    _mount("proc", _made(root / "proc"), "proc", _NOSUID | _NODEV | _NOEXEC)
    _tmpfs(_made(root / "dev"), "0755")
    for name in _DEVICES:
        _bind(old / "dev" / name, root / "dev" / name, Kind.DEVICE)
    (root / "dev" / "fd").symlink_to("/proc/self/fd")
    for memory in ("dev/shm", "tmp"):
        _tmpfs(_made(root / memory), "1777")
    closed = [root, root / "dev"]
    for path, kind, target in steps:
        inside, outside = (each / path.relative_to("/") for each in (root, old))
        if kind is Kind.LISTED:
            _made(inside)
        elif kind is Kind.LINK:
            _made(inside.parent)
            inside.symlink_to(target)
        elif kind is Kind.HIDDEN and outside.is_dir():
            _tmpfs(_made(inside), "0755")
            closed.append(inside)
        else:
            _bind(old / "dev/null" if kind is Kind.HIDDEN else outside, inside, kind)
    for path in reversed(closed):
        _set_attributes(path, _RDONLY, recursive=False)
    os.chdir(root)
    # The old one lies over the new one then, and goes: with it the scaffold, and all that was outside.
    _pivot_root(Path(), Path())
    _checked(_libc().umount2(b".", _DETACH), "umount2")
    os.chdir("/")


def _bind(outside: Path, inside: Path, kind: Kind) -> None:
    if outside.is_dir():
        _made(inside)
    elif not inside.exists():
        _made(inside.parent)
        inside.touch()
    _mount(outside, inside, "", _BIND | _REC)
    attributes = _NOSUID
    if kind is not Kind.DEVICE:
        attributes |= _NODEV
    if kind is not Kind.WRITABLE:
        attributes |= _RDONLY
    _set_attributes(inside, attributes, recursive=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace"))


def _set_attributes(path: Path, attributes: int, *, recursive: bool) -> None:
    """Add to what a mount was mounted with; recursive: also to those below it. Since Linux 5.12."""
    given = _MountAttributes(attributes, 0, 0, 0)
    result = _libc().syscall(
        _MOUNT_SETATTR,
        _AT_FDCWD,
        os.fsencode(path),
        _AT_RECURSIVE if recursive else 0,
        ctypes.byref(given),
        ctypes.c_size_t(ctypes.sizeof(given)),
    )
    _checked(result, f"mount_setattr on {path}")


def _pivot_root(new: Path, old: Path) -> None:
    _checked(_libc().syscall(_PIVOT_ROOT[os.uname().machine], os.fsencode(new), os.fsencode(old)), "pivot_root")


def _made(path: Path) -> Path:
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    return path


def _tmpfs(path: Path, mode: str) -> None:
    _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, f"mode={mode},size={_TMPFS_BYTES}")


def _mount(source: Path | str, target: Path | str, kind: str, flags: int, data: str = "") -> None:
    result = _libc().mount(
        os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode() or None
    )
    _checked(result, f"mount on {target}")


def _die_with_parent() -> None:
    _checked(_libc().prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl")


def _end_like(child: int) -> None:
    """Wait for the child and end as it did. Does not return."""
    _close_all()
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _end_with(process: int) -> None:
    """As the first process: wait for all that are left to it, until ``process`` ends. Does not return."""
    _close_all()
    while True:
        with suppress(InterruptedError):
            ended, status = os.wait()
            if ended == process:
                os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _close_all() -> None:
    """Who only waits holds no pipe open."""
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")

"""Landlock: a process gives up the rest of the file system, without namespaces and without being root.

It has no way to take something out of what was allowed, so ``rules`` allows around what is hidden: a directory with
something hidden in it can be listed, and each of its other entries read. Names can be looked up (``stat``) everywhere.

Source: landlock(7) and linux/landlock.h, up to the sixth version of its interface.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from server.jail.view import Kind, Step

__all__ = ["LIST", "READ", "WRITE", "restrict_files", "rules", "version"]

#: What may be done below a path.
LIST, READ, WRITE = "list", "read", "write"

#: The same numbers on every processor: those of all calls that are younger than 2018.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
#: Those that concern one file; the others are of directories.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
#: All rights by the version that brought the last of them.
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_READS = _EXECUTE | _READ_FILE | _READ_DIR
#: TCP's bind and connect, from version 4.
_NETWORK = 3
#: Abstract sockets and signals to processes outside, from version 6.
_SCOPES = 3

#: Devices that every process has. Terminals are none of them.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
#: What TensorFlow and NumPy want to know of the machine, and nothing of other processes.
_FACTS = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/sys")
#: A directory with more entries than this is listed, and what is in it can't be read: as if all of it were hidden.
_MOST_ENTRIES = 10_000

Rule = tuple[str, str]


def version() -> int:
    """Return the version of Landlock's interface; 0 where the kernel has none or it is turned off."""
    found: int = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(found, 0)


def rules(steps: Sequence[Step]) -> list[Rule]:
    """Return what to allow for a view, and for what every process needs: path and LIST, READ or WRITE."""
    hidden = {step.path for step in steps if step.kind is Kind.HIDDEN}
    allowed = [(device, WRITE) for device in _DEVICES] + [(fact, READ) for fact in _FACTS]
    for step in steps:
        if step.kind in {Kind.WRITABLE, Kind.DEVICE}:
            allowed.append((str(step.path), WRITE))
        elif step.kind is Kind.LISTED:
            allowed.append((str(step.path), LIST))
        elif step.kind is Kind.READABLE:
            allowed += _around(step.path, hidden)
    return allowed


def _around(path: Path, hidden: set[Path]) -> list[Rule]:
    if path in hidden:
        return []
    if not any(path in each.parents for each in hidden):
        return [(str(path), READ)]
    allowed = [(str(path), LIST)]
    entries = os.listdir(path)  # noqa: PTH208 - names
    for name in entries if len(entries) <= _MOST_ENTRIES else ():
        # What a link leads to is allowed by its own path or not at all.
        if not (path / name).is_symlink():
            allowed += _around(path / name, hidden)
    return allowed


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


def restrict_files(allowed: Iterable[Rule]) -> None:
    """Let this process and all that it starts do no more than ``allowed``. They can't gain privileges already.

    It may list and read its own entry in ``/proc``. Errors: OSError.
    """
    offered = version()
    every = _RIGHTS[max(each for each in _RIGHTS if each <= offered)]
    handled = _Ruleset(every, _NETWORK if offered >= 4 else 0, _SCOPES if offered >= 6 else 0)
    size = 24 if offered >= 6 else 16 if offered >= 4 else 8
    ruleset = _checked(_libc().syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(size), 0))
    try:
        for path, right in (*allowed, (f"/proc/{os.getpid()}", READ)):
            rights = {LIST: _READ_DIR, READ: _READS, WRITE: every}[right]
            try:
                opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue  # it went meanwhile, or its parent may not be entered
            try:
                of_it = rights if os.path.isdir(path) else rights & _OF_FILES  # noqa: PTH112 - a script's start
                rule = _PathBeneath(of_it & every, opened)
                _checked(_libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
            finally:
                os.close(opened)
        _checked(_libc().syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result

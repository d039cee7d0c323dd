"""A filter of system calls: what no builder needs, and what kernels were broken by, is refused with EPERM.

By libseccomp, which knows every processor's numbers and the second way in that some have. It is on every Debian, as its
package manager needs it; called here through ctypes, so that no wrapper has to be installed. What is refused are calls
by name, not everything but a list: TensorFlow, XLA and drivers make hundreds of different ones, and change.

Source: the calls that Docker's default profile and systemd's groups (``@privileged``, ``@debug``, ``@mount``,
``@keyring``) leave out, where nothing that builds a model has a use for them.
"""

from __future__ import annotations

import ctypes
import errno
from contextlib import suppress

__all__ = ["filter_system_calls", "has_filter"]

#: Refused with EPERM.
_REFUSED = (
    # Other processes, and the kernel's own debugging.
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd", "perf_event_open"),
    *("bpf", "userfaultfd", "lookup_dcookie", "syslog", "acct"),
    # Mounts and namespaces.
    *("mount", "umount", "umount2", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("mount_setattr", "pivot_root", "chroot", "unshare", "setns", "name_to_handle_at", "open_by_handle_at"),
    # A second way to do anything, past filters such as this one.
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    # Keys, quotas, modules, clocks, devices, the machine itself.
    *("add_key", "keyctl", "request_key", "quotactl", "quotactl_fd", "swapon", "swapoff", "reboot", "kexec_load"),
    *("kexec_file_load", "init_module", "finit_module", "delete_module", "iopl", "ioperm", "settimeofday"),
    *("clock_settime", "clock_adjtime", "adjtimex", "stime", "sethostname", "setdomainname", "vhangup", "nfsservctl"),
    *("fanotify_init", "modify_ldt", "vm86", "vm86old"),
    # Memory that belongs to no process, so that nobody would count it.
    *("shmget", "shmat", "msgget", "semget", "mq_open", "memfd_secret"),
)
#: Refused as if the kernel had no such call: who calls them goes another way then.
_ABSENT = ("clone3", "memfd_create")

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_UNKNOWN = -1
_MASKED_EQUAL = 7
_CLONE_NEWUSER = 0x10000000
_TIOCSTI = 0x5412


class _Argument(ctypes.Structure):
    _fields_ = (
        ("index", ctypes.c_uint),
        ("comparison", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def has_filter() -> bool:
    """Return whether libseccomp is there."""
    with suppress(OSError):
        _library()
        return True
    return False


def filter_system_calls(*, no_sockets: bool) -> None:
    """Refuse what is listed here to this process and all that it starts. It can't gain privileges after that.

    ``no_sockets``: it can make no sockets either, but pairs of them; for where it shares the machine's network.
    Errors: OSError.
    """
    library = _library()
    context = library.seccomp_init(_ALLOW)
    if not context:
        raise OSError("libseccomp: no filter could be made")
    try:
        for name in (*_REFUSED, *(("socket",) if no_sockets else ())):
            _refuse(library, context, name, errno.EPERM)
        for name in _ABSENT:
            _refuse(library, context, name, errno.ENOSYS)
        _refuse(library, context, "clone", errno.EPERM, _Argument(0, _MASKED_EQUAL, _CLONE_NEWUSER, _CLONE_NEWUSER))
        _refuse(library, context, "ioctl", errno.EPERM, _Argument(1, _MASKED_EQUAL, 0xFFFFFFFF, _TIOCSTI))
        _checked(library.seccomp_load(context), "seccomp_load")
    finally:
        library.seccomp_release(context)


def _refuse(library: ctypes.CDLL, context: int, name: str, error: int, *arguments: _Argument) -> None:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number == _UNKNOWN:
        return  # younger than the library: a kernel that is older than both does not have it
    given = (_Argument * len(arguments))(*arguments)
    result = library.seccomp_rule_add_array(context, _ERRNO | error, number, len(arguments), given)
    _checked(result, name)


def _checked(result: int, what: str) -> None:
    if result < 0:
        raise OSError(-result, f"libseccomp: {what}: {errno.errorcode.get(-result, result)}")


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_release.argtypes = [ctypes.c_void_p]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(_Argument),
    ]
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    return library

"""Memory: what the machine, the control group and the limits of this shell leave for it."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from rowwise.doctor.finding import Finding, advice, fine, wrong
from server.settings import Settings

__all__ = ["memory_bytes", "memory_findings"]

_GIB = 2**30
#: A server with a small model has 0.6 GiB resident, its builder 0.7 GiB.
_LEAST_BYTES = 2 * _GIB
#: TensorFlow reserves much more than it uses; with less a large model's build fails where memory is left.
_LEAST_ADDRESS_SPACE_BYTES = 16 * _GIB


def memory_bytes(meminfo: str) -> int:
    """Return the machine's memory by the text of /proc/meminfo; 0 where it does not say."""
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1_024
    return 0


def memory_findings(
    settings: Settings, *, total_bytes: int, cgroup_bytes: int | None, address_space_bytes: int
) -> Iterator[Finding]:
    """Yield what is too little. ``address_space_bytes``: the limit RLIMIT_AS, resource.RLIM_INFINITY for none."""
    if address_space_bytes != resource.RLIM_INFINITY and address_space_bytes < _LEAST_ADDRESS_SPACE_BYTES:
        yield wrong(
            "memory",
            f"this shell limits the address space to {_gib(address_space_bytes)} (ulimit -v)",
            why="TensorFlow reserves more than it uses: loading or building fails though memory is free",
            to_do="ulimit -v unlimited; a control group limits what is really used (systemd MemoryMax=, docker -m)",
        )
    usable = total_bytes if cgroup_bytes is None else min(total_bytes, cgroup_bytes)
    if usable < _LEAST_BYTES:
        yield wrong(
            "memory",
            f"{_gib(usable)} of memory",
            why="a server takes 0.6 GiB with a small model, and what builds one as much again",
            to_do="give it 2 GiB or more",
        )
        return
    builds = settings.build_memory_bytes * settings.concurrent_builds
    queued = settings.server_queue_bytes + settings.max_receiving_bytes
    if builds + queued > usable:
        yield advice(
            "memory",
            f"builds may take {_gib(builds)} and what waits {_gib(queued)}, and there are {_gib(usable)}",
            why="a large build can use all memory up: the kernel then ends a process (a builder first, if it can)",
            to_do="lower --build-memory-bytes to what is left beside the models that serve",
        )
    else:
        yield fine("memory", f"{_gib(usable)} of memory")


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / _GIB:.1f} GiB"

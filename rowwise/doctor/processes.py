"""How many processes and threads this user may have."""

from __future__ import annotations

import resource

from rowwise.doctor.finding import Finding, fine, wrong

__all__ = ["processes_finding"]

#: A server, and a builder with TensorFlow's pools, which have some threads for each core.
_NEEDED = 256
_NEEDED_PER_CORE = 32


def processes_finding(*, uid: int, limit: int, n_running: int, n_cores: int, cgroup_processes: int | None) -> Finding:
    """Return whether there is room for the server's threads. ``limit``: RLIMIT_NPROC, which root is not held to."""
    needed = _NEEDED + _NEEDED_PER_CORE * n_cores
    why = "threads can't be started: TensorFlow ends the process, and builds fail for no reason of their own"
    if cgroup_processes is not None and cgroup_processes < needed:
        return wrong(
            "processes",
            f"the control group allows {cgroup_processes} processes and threads, and about {needed} are needed",
            why=why,
            to_do="raise it: TasksMax= in the unit, docker --pids-limit, podPidsLimit",
        )
    if uid != 0 and limit != resource.RLIM_INFINITY and limit - n_running < needed:
        return wrong(
            "processes",
            f"this user may have {limit} processes and threads and has {n_running}; about {needed} more are needed",
            why=why,
            to_do="raise it: ulimit -u 8192, or LimitNPROC=8192 in the unit",
        )
    shown = "any number of" if uid == 0 or limit == resource.RLIM_INFINITY else f"{limit:,}"
    return fine("processes", f"{shown} processes and threads for this user")

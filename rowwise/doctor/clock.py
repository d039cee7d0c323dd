"""The clock, and where random numbers come from."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from rowwise.doctor.finding import Finding, fine, wrong

__all__ = ["clock_findings", "has_entropy"]

#: 2026-01-01: before this was written it can't run.
_EARLIEST_S = 1_767_225_600.0


def has_entropy() -> bool:
    """Return whether the kernel has gathered enough for random numbers; soon after boot it may not have."""
    try:
        os.getrandom(16, os.GRND_NONBLOCK)
    except BlockingIOError:
        return False
    return True


def clock_findings(*, now_s: float, entropy: Callable[[], bool] = has_entropy) -> Iterator[Finding]:
    """Yield what is wrong with either."""
    if now_s < _EARLIEST_S:
        yield wrong(
            "clock",
            f"the clock says {time.ctime(now_s)}",
            why="certificates are not valid yet, and logs and the history of versions tell a wrong time",
            to_do="set the clock (timedatectl, chronyc), and let a time service keep it",
        )
    else:
        yield fine("clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s)))
    if not entropy():
        yield wrong(
            "entropy",
            "the kernel has no random numbers yet",
            why="TLS and new tokens wait for them",
            to_do="let the virtual machine have a virtio-rng device, or install an entropy daemon",
        )

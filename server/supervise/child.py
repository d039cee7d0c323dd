"""The first thing that runs in a child of the supervisor: tie its life to the supervisor's, then become what it is.

Run as a script with ``-P``: neither the current directory nor this one may hide a package.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

__all__ = ["main"]

# prctl(2).
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Read the orders on standard input and follow them. Returns the exit code."""
    # Gently: a child whose supervisor was killed answers what it has, and ends.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(int(signal.SIGTERM)), 0, 0, 0)
    # Until it is listened to: who is told before that looks for itself.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    told = json.load(sys.stdin)
    if os.getppid() != told["supervisor_pid"]:
        return 0  # it ended before the kernel knew that we go with it
    sys.path[:] = told["path"]
    from server.supervise.orders import Orders
    from server.supervise.supervision import ENGINE

    orders = Orders.from_json(told)
    if orders.name == ENGINE:
        from server.engine_process import run_engine

        return run_engine(orders)
    from server.http_worker import run_worker

    return run_worker(orders)


if __name__ == "__main__":
    sys.exit(main())

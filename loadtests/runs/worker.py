"""The process that sends: a pickled plan on standard input, lines of JSON on standard output, the outcome in a file.

``python -m loadtests.runs.worker ENGINE FILE``. SIGTERM ends the load early, and what was seen until then is written.
A process of its own, so that whoever shows progress doesn't slow it down, and so that several can share the load.
"""

from __future__ import annotations

import json
import pickle
import resource
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from loadtests.runs.generator import Generator, Plan, Progress

__all__: list[str] = []


def _tell(progress: Progress) -> None:
    print(json.dumps(asdict(progress)), flush=True)


def main() -> None:
    """Run one plan."""
    engine, file = sys.argv[1:]
    # A connection is an open file, and the usual limit of 1,024 can be raised by anybody to the hard one.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    plan: Plan = pickle.loads(sys.stdin.buffer.read())
    if engine == "locust":
        # Late: it changes sockets and threads of the whole process.
        from loadtests.runs.locust_users import drive

        seen = drive(plan, on_progress=_tell, is_stopped=stopped.is_set)
    else:
        seen = Generator(plan, on_progress=_tell, is_stopped=stopped.is_set).run()
    Path(file).write_bytes(pickle.dumps(seen))


if __name__ == "__main__":
    try:
        main()
    except OSError as failure:
        # The last line is what the caller is told.
        print(failure, file=sys.stderr)
        sys.exit(1)

"""What seeds faults for real: a process of its own that is changed before it looks."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterable

from rowwise.doctor import Finding

__all__ = ["NOBODY", "become_nobody", "in_a_child"]

NOBODY = 65_534


def in_a_child(prepare: Callable[[], object], look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what is found in a process that ``prepare`` has changed: its limits, its user, what it may call."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            prepare()
            told = json.dumps([{"why": "", "to_do": "", **finding.to_json()} for finding in look()])
            os.write(write, told.encode())
        except BaseException:  # noqa: BLE001 - told by the exit code, and read in the test's output
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return [Finding(**each) for each in json.loads(text)]


def become_nobody() -> None:
    """Root may write everything, and is not counted: be somebody else."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

"""``rowwise``, whole, but that it can be killed before a step of its store, and that it copies what it would build.

``python tests/e2e/mortal_server.py CONTROL ARTIFACTS serve ...``: while the file CONTROL holds a number, each durable
step takes one off it, and the step that finds 0 is not done: the process kills itself (SIGKILL). With a regular
expression after the number, it begins with the first step that matches. ``CONTROL.steps`` gets a line for each of those
steps. A version of ``m:NAME`` is a copy of ``ARTIFACTS/NAME``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rowwise.cli import main
from server.artifact import Manifest
from server.build import Builder, BuildRequest, ImportSource, Progress
from server.store import Disk


class KilledBefore:
    """The fault hook."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._steps = control.with_name(control.name + ".steps")
        self._lock = threading.Lock()

    def __call__(self, step: str) -> None:
        with self._lock:
            try:
                left, _, first = self._control.read_text().partition(" ")
            except FileNotFoundError:
                return
            if first and not re.fullmatch(first, step):
                return
            with self._steps.open("a") as file:
                file.write(f"{step}\n")
            if int(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._control.write_text(str(int(left) - 1))


def copying(artifacts: Path, fault: KilledBefore) -> Callable[..., object]:
    async def build(_: Builder, request: BuildRequest, on_progress: Callable[[Progress], None]) -> None:
        assert isinstance(request.source, ImportSource)
        on_progress(Progress("write", 0, 1))
        fault("begin to build")
        shutil.copytree(artifacts / request.source.target.partition(":")[2], request.output_dir, dirs_exist_ok=True)
        fault("end to build")
        replace(Manifest.read(request.output_dir), name=request.name, version=request.version).write(request.output_dir)

    return build


if __name__ == "__main__":
    _, control_file, artifacts_directory, *arguments = sys.argv
    hook = KilledBefore(Path(control_file))
    Disk.__init__.__kwdefaults__["fault"] = hook
    Builder.build = copying(Path(artifacts_directory), hook)  # type: ignore[assignment, method-assign]
    sys.argv = ["rowwise", *arguments]
    main()

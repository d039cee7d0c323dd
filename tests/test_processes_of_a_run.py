"""The test run itself: what happens when one of its processes dies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEADLY = """
import os
import pathlib
import time

def test_before(): pathlib.Path("doomed").write_text(os.environ["PYTEST_XDIST_WORKER"])

def test_deadly():
    time.sleep({delay_s})
    os._exit(9)

def test_after(): pass
"""
#: What the process is sent after `test_before` comes when it has died in `test_deadly`.
SENT_LATE = """
import pathlib
import time

from xdist.workermanage import WorkerController

_send = WorkerController.send_runtest_some

def _send_late(self, indices):
    doomed = pathlib.Path("doomed")
    if doomed.exists() and doomed.read_text() == self.gateway.id:
        time.sleep(2)
    _send(self, indices)

WorkerController.send_runtest_some = _send_late
"""
HARMLESS = "def test_one(): pass\ndef test_two(): pass\n"


@pytest.mark.parametrize(
    ("delay_s", "addition"),
    [(0, ""), (3, ""), (0, SENT_LATE)],
    ids=["the other at work", "the other done", "while it is sent more"],
)
def test_a_run_whose_process_dies_names_the_test_and_does_all_the_others(
    tmp_path: Path, delay_s: int, addition: str
) -> None:
    conftest = tmp_path / "conftest.py"
    shutil.copy(Path(__file__).with_name("conftest.py"), conftest)
    conftest.write_text(conftest.read_text() + addition)
    for name in "abcefghi":
        (tmp_path / f"test_{name}.py").write_text(HARMLESS)
    (tmp_path / "test_d.py").write_text(DEADLY.format(delay_s=delay_s))
    options = ["-p", "xdist.plugin", "--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        check=False,
        cwd=tmp_path,
        env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 1, run.stdout
    assert "1 failed, 18 passed" in run.stdout
    assert "FAILED test_d.py::test_deadly" in run.stdout

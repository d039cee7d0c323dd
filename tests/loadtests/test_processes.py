"""What the kernel says of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from loadtests.processes import cpu_s, tree_cpu_s

_SPIN = "import time\nwhile time.process_time() < 0.3: pass\nprint('spun', flush=True)\ninput()"


def test_processor_time_of_a_child_is_the_trees_and_not_the_parents() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.05)
        assert cpu_s(child.pid) >= 0.25
        assert tree_cpu_s(os.getpid()) >= cpu_s(os.getpid()) + 0.25
        child.communicate("\n")


def test_a_process_that_is_gone_has_used_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert cpu_s(child.pid) == 0.0

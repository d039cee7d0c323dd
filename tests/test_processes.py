"""What the kernel says of processes, and the table of those that are the server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from server.processes import ProcessTable, read_table, table_of_one, usage_of, write_table


def test_a_process_has_memory_descriptors_threads_and_an_age() -> None:
    first = usage_of(os.getpid())
    assert first is not None
    assert first.resident_bytes > 10 * 2**20
    assert 0 < first.n_descriptors <= first.max_descriptors
    assert first.n_threads >= 1
    assert 0 < time.time() - first.started_s < 86_400
    with Path("/dev/null").open() as _:
        while (second := usage_of(os.getpid())) and second.cpu_s == first.cpu_s:
            sum(range(100_000))
        assert second is not None
        assert second.n_descriptors == first.n_descriptors + 1
    assert second.started_s == first.started_s


def test_one_that_has_ended_has_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert usage_of(process.pid) is None


def test_the_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = ProcessTable(pids={"supervisor": 1, "worker 1": 2}, restarts={"worker 1": 3})
    write_table(table, tmp_path / "processes.json")
    assert read_table(tmp_path / "processes.json") == table
    assert read_table(tmp_path / "none") == table_of_one()
    assert table_of_one().pids == {"server": os.getpid()}

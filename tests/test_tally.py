"""Counts that outlive the process that counted, and the sums that a scrape shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from server.metrics import Metrics
from server.request_counts import RequestCounts, WorkerMetrics
from server.tally import Tally, read_tally

ROOT = Path(__file__).resolve().parent.parent

COUNTING = """
import sys
from pathlib import Path
from server.tally import Tally
count = Tally(Path(sys.argv[1])).counter("digits", "1", "predict", "200")
for n in range(1, 100_000_000):
    count()
    if n == 1_000:
        print("counted", flush=True)
"""


def test_counts_go_on_where_the_last_process_stopped(tmp_path: Path) -> None:
    first = Tally(tmp_path / "tally")
    count = first.counter("a", "1")
    count()
    count()
    first.counter("é\n", "")()
    first.close()
    second = Tally(tmp_path / "tally")
    second.counter("a", "1")()
    assert dict(second.counts()) == {("a", "1"): 3, ("é\n", ""): 1}
    assert dict(read_tally(tmp_path / "tally")) == dict(second.counts())


def test_nothing_is_lost_when_the_counting_process_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", COUNTING, str(tmp_path / "tally")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"counted\n"
    during = dict(read_tally(tmp_path / "tally"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    labels = ("digits", "1", "predict", "200")
    after = dict(read_tally(tmp_path / "tally"))
    assert 1_000 <= during[labels] <= after[labels]


def test_a_tally_grows_and_counters_that_were_handed_out_go_on(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "tally")
    first = tally.counter("first")
    for n in range(3_000):
        tally.counter("model", str(n), "x" * 40)()
    first()
    counts = dict(read_tally(tmp_path / "tally"))
    assert len(counts) == 3_001
    assert set(counts.values()) == {1}
    assert counts == dict(Tally(tmp_path / "tally").counts())


def test_a_file_that_is_no_tally_is_refused_and_one_that_was_just_made_is_empty(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"something else, and long enough")
    with pytest.raises(ValueError, match="no counts"):
        Tally(tmp_path / "other")
    (tmp_path / "new").touch()
    assert read_tally(tmp_path / "new") == []


def shown(counts: RequestCounts) -> dict[tuple[str, str], float]:
    registry = CollectorRegistry()
    registry.register(counts)
    return {
        (sample.labels["version"], sample.labels["code"]): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_a_scrape_shows_the_counts_of_one_worker_only(tmp_path: Path) -> None:
    files = [tmp_path / f"worker-{n}" for n in range(4)]
    counts = RequestCounts(Tally(tmp_path / "engine"), others=lambda: files)
    workers = [WorkerMetrics(Tally(file)) for file in files]
    for n, worker in enumerate(workers):
        for _ in range(n + 1):
            worker.of_version("digits", 1).request(200)
        worker.of_version("digits", 1).request(429)
        worker.request_without_model(400)
    counts.counter("digits", "1", "predict", "200", "")()
    expected = {("1", "200"): 11, ("1", "429"): 4, ("", "400"): 4}
    assert shown(counts) == expected
    again = WorkerMetrics(Tally(files[0]))
    assert shown(counts) == expected
    again.of_version("digits", 1).request(200)
    assert shown(counts)["1", "200"] == 12


def test_a_deleted_version_is_shown_no_more_and_one_of_its_number_begins_at_zero(tmp_path: Path) -> None:
    file = tmp_path / "worker"
    metrics = Metrics(process=False, requests=RequestCounts(others=lambda: [file]))
    worker = WorkerMetrics(Tally(file))
    for version in (1, 2):
        metrics.of_version("digits", version)
        worker.of_version("digits", version).request(200)
    metrics.forget("digits", 1)
    worker.of_version("digits", 1).request(200)
    assert shown(metrics.requests) == {("2", "200"): 1}
    metrics.of_version("digits", 1)
    worker.of_version("digits", 1).request(200)
    assert shown(metrics.requests)["1", "200"] == 2  # the one that was late, and the new one


def test_a_restarted_engine_shows_only_what_still_exists(tmp_path: Path) -> None:
    worker = WorkerMetrics(Tally(tmp_path / "worker"))
    for version in (1, 2):
        worker.of_version("digits", version).request(200)
    worker.request_without_model(404)
    counts = RequestCounts(others=lambda: [tmp_path / "worker"])
    counts.keep([("digits", "2")])
    assert shown(counts) == {("2", "200"): 1, ("", "404"): 1}

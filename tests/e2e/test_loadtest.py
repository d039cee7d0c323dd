"""``rowwise loadtest`` against the real server: what it counts is what the server counts."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from server_process import ROOT, ServerProcess

import models.digits

pytestmark = pytest.mark.e2e

COUNTED = "rowwise_requests_total"


@pytest.fixture(scope="module")
def images() -> np.ndarray[Any, Any]:
    return np.stack([example["image"] for example in islice(models.digits.examples(), 64)])


def loadtest(url: str, output: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Run the command as a process, and return its exit code and its report."""
    command = [sys.executable, "-m", "rowwise", "loadtest", url, "--model", "digits", "--output", str(output)]
    ended = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert (output / "report.json").exists(), ended.stderr
    return ended.returncode, json.loads((output / "report.json").read_text())


def test_an_open_loop_of_recorded_images_is_answered_rightly_and_counted_alike(
    server: ServerProcess, images: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    np.save(tmp_path / "images.npy", images)
    before = server.counted(COUNTED)
    options = ("--rate", "60", "--duration", "2", "--warmup", "0", "--timeout", "60", "--check")
    code, report = loadtest(server.url, tmp_path / "report", "--inputs", str(tmp_path / "images.npy"), *options)
    assert code == 0, report["targets"]
    figures = report["run"]["figures"]
    assert figures["n_failed"] == 0
    assert report["models"][0]["n_questions"] == 64
    # Each image was asked alone once, before the load.
    assert server.counted(COUNTED) - before == figures["n_requests"] + 64
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]


def test_binary_tensors_by_a_closed_loop_are_answered_rightly(server: ServerProcess, tmp_path: Path) -> None:
    options = ("--form", "binary", "--generate", "20", "--check", "--callers", "4", "--engine", "driver")
    code, report = loadtest(server.url, tmp_path, "--duration", "1", "--warmup", "0.2", "--timeout", "60", *options)
    assert code == 0, report["targets"]
    assert report["models"][0]["form"] == "binary"
    assert report["run"]["figures"]["n_right"] > 0


@pytest.mark.long
def test_the_looped_baseline_is_started_and_compared_with(server: ServerProcess, tmp_path: Path) -> None:
    options = ("--baseline", "models.digits:predict", "--repeats", "1", "--duration", "1", "--engine", "driver")
    code, report = loadtest(server.url, tmp_path, "--check", "--generate", "20", *options)
    assert code == 0, report["targets"]
    names = [contender["name"] for contender in report["comparison"]["contenders"]]
    assert names == [server.url, "looped baseline"]
    assert all(contender["runs"][0]["n_failed"] == 0 for contender in report["comparison"]["contenders"])


@pytest.mark.long
def test_locust_drives_the_same_load(server: ServerProcess, tmp_path: Path) -> None:
    options = ("--engine", "locust", "--callers", "2", "--duration", "2", "--check", "--generate", "10")
    code, report = loadtest(server.url, tmp_path, *options)
    assert code == 0, report["targets"]
    assert report["generator"]["engine"] == "locust"
    assert report["run"]["figures"]["n_right"] > 0

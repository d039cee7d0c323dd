"""Promise 9: the store survives the end of the process at any step: the old state or the new one, nothing between.

Two extremes enclose what a real crash leaves. kill -9: everything written is there. A power cut: only what was
fsynced is there (and, in between, names without their contents). Each operation is ended before each of its steps.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from server.store import Disk, Store
from tests.store.operations import OPERATIONS, Countdown, build, noon, operate
from tests.store.powerloss import PowerLoss
from tests.store.snapshots import Snapshot, skip, snapshot

ROOT = Path(__file__).parents[2]


class PowerCut(BaseException):
    """Ends an operation where it is."""


def check(operation: str, snapshots: list[Snapshot]) -> None:
    """The state may change once, from the old one to the new one."""
    old, new = snapshots[0], snapshots[-1]
    if OPERATIONS[operation][1] is not None:
        assert old != new, "the operation did nothing"
    changed = [index for index, seen in enumerate(snapshots) if seen != old]
    for index in changed:
        assert snapshots[index] == new, f"something between, before step {index}"
    assert changed == list(range(len(snapshots) - len(changed), len(snapshots))), "it went back and forth"


def check_usable(root: Path, given: set[tuple[str, int]]) -> None:
    """A store that was recovered takes new versions, under numbers that were never given out."""
    with Store.open(root, disk=Disk(fsync=skip), now=noon) as store:
        for name in ("a", "b", "new"):
            version = build(store, name, "later")
            assert (name, version) not in given
            assert store.activate(name, version).active


@pytest.fixture(params=OPERATIONS)
def operation(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


GIVEN = {("a", 1), ("a", 2), ("a", 3), ("b", 1)}


def test_killed_before_any_step_the_store_is_as_before_or_after(operation: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.operations", str(tmp_path), operation],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    steps = json.loads(done.stdout)
    assert len(steps) >= 2
    roots = [tmp_path / str(step) for step in range(len(steps) + 1)]
    check(operation, [snapshot(root) for root in roots])
    for root in roots:
        check_usable(root, GIVEN)


def cut_at_each_step(directory: Path, operation: str, *, names_last: bool) -> Iterator[Path]:
    """Give what a power cut before each step leaves, and last what one right after the operation leaves."""
    for step in count():
        power = PowerLoss()

        def cut() -> None:
            raise PowerCut

        fault = Countdown(step, cut)
        root, left = directory / f"{step}-running", directory / f"{step}-left"
        done = True
        try:
            operate(root, operation, Disk(fault=fault, fsync=power.fsync), fault)
        except PowerCut:
            done = False
        power.leave(root, left, names_last=names_last)
        power.close()
        yield left
        if done:
            return


@pytest.mark.parametrize(
    "names_last",
    [
        pytest.param(False, id="nothing unsynced lasts"),
        pytest.param(True, id="unsynced names last", marks=pytest.mark.long),
    ],
)
def test_after_a_power_cut_before_any_step_the_store_is_as_before_or_after(
    operation: str, tmp_path: Path, *, names_last: bool
) -> None:
    snapshots = []
    for left in cut_at_each_step(tmp_path, operation, names_last=names_last):
        snapshots.append(snapshot(left))
        check_usable(left, GIVEN)
    assert len(snapshots) > 2
    check(operation, snapshots)


@pytest.mark.parametrize("operation", ["commit", "activate"], indirect=True)
def test_names_that_outlive_what_they_name_are_not_taken_for_it(operation: str, tmp_path: Path) -> None:
    """Every operation is tried so in the long run."""
    snapshots = [snapshot(left) for left in cut_at_each_step(tmp_path, operation, names_last=True)]
    check(operation, snapshots)


def test_without_fsync_a_power_cut_would_be_seen(tmp_path: Path) -> None:
    # The double itself: a store whose fsync does nothing must fail it.
    power = PowerLoss()
    fault = Countdown(0, lambda: None)
    operate(tmp_path / "running", "activate", Disk(fault=fault, fsync=skip), fault)
    power.leave(tmp_path / "running", tmp_path / "left", names_last=False)
    assert snapshot(tmp_path / "left") == {}


@pytest.mark.parametrize(("n_rounds", "seed"), [(10, 1), pytest.param(200, 2, marks=pytest.mark.long)])
def test_a_store_that_is_killed_again_and_again_goes_on(tmp_path: Path, n_rounds: int, seed: int) -> None:
    # In a process of its own, which forks and so must have one thread.
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.store.rounds",
            str(tmp_path / "d"),
            "--rounds",
            str(n_rounds),
            "--seed",
            str(seed),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

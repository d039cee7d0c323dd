"""Directories of replicas on one machine: each its own, and those of killed ones removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from server.replica.own_directory import OwnDirectory

_HOLD = """
import sys
from pathlib import Path
from server.replica.own_directory import OwnDirectory
held = OwnDirectory(Path(sys.argv[1]))
print(held.path, flush=True)
sys.stdin.read()
"""


def test_each_has_its_own_until_it_is_closed(tmp_path: Path) -> None:
    one, two = OwnDirectory(tmp_path / "base"), OwnDirectory(tmp_path / "base")
    assert one.path != two.path
    assert one.path.is_dir()
    one.close()
    assert not one.path.exists()
    assert two.path.is_dir()
    two.close()


def test_what_a_killed_replica_left_goes_and_what_a_living_one_has_stays(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        (theirs / "file").touch()
        first = OwnDirectory(tmp_path)
        assert theirs.is_dir(), "it is held"
        other.kill()
        other.wait()
    second = OwnDirectory(tmp_path)
    assert not theirs.exists()
    assert first.path.is_dir()
    first.close()
    second.close()

"""Each durable operation by itself: once it has returned, a power cut leaves its result."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.store import Disk, StoreDamaged, StoreUnwritable
from server.store.durable import read_json
from tests.store.powerloss import PowerLoss


@pytest.fixture
def power() -> Iterator[PowerLoss]:
    double = PowerLoss()
    yield double
    double.close()


@pytest.fixture
def disk(power: PowerLoss) -> Disk:
    return Disk(fsync=power.fsync)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "root"
    directory.mkdir()
    return directory


def left(power: PowerLoss, root: Path) -> dict[str, bytes | None]:
    """Cut the power; return what is left, with None for directories."""
    target = root.with_name("left")
    power.leave(root, target, names_last=False)
    return {
        path.relative_to(target).as_posix(): path.read_bytes() if path.is_file() else None for path in target.rglob("*")
    }


def test_a_written_file_lasts(disk: Disk, power: PowerLoss, root: Path) -> None:
    disk.write_json(root / "state.json", {"a": 1})
    disk.write_json(root / "state.json", {"a": 2})
    assert left(power, root) == {"state.json": b'{\n "a": 2\n}\n'}


def test_a_made_directory_lasts_with_those_above_it(disk: Disk, power: PowerLoss, root: Path) -> None:
    disk.make_directory(root / "a" / "b")
    assert left(power, root) == {"a": None, "a/b": None}


def test_a_new_directory_lasts_with_all_that_was_put_in_it(disk: Disk, power: PowerLoss, root: Path) -> None:
    with disk.new_directory(root / "made") as new:
        assert not (root / "made").exists()
        (new / "deep").mkdir()
        (new / "deep" / "file").write_text("contents")
    assert left(power, root) == {"made": None, "made/deep": None, "made/deep/file": b"contents"}


def test_a_new_directory_whose_block_raises_never_was(disk: Disk, root: Path) -> None:
    with pytest.raises(ZeroDivisionError), disk.new_directory(root / "made"):
        raise ZeroDivisionError
    assert not list(root.iterdir())


def test_a_moved_directory_lasts_at_its_target_and_nowhere_else(disk: Disk, power: PowerLoss, root: Path) -> None:
    disk.make_directory(root / "from")
    disk.make_directory(root / "to")
    with disk.new_directory(root / "from" / "thing") as new:
        (new / "file").write_text("contents")
    disk.move(root / "from" / "thing", root / "to" / "moved")
    assert left(power, root) == {"from": None, "to": None, "to/moved": None, "to/moved/file": b"contents"}


def test_a_removed_file_stays_away(disk: Disk, power: PowerLoss, root: Path) -> None:
    disk.write_json(root / "state.json", {})
    disk.remove_file(root / "state.json")
    disk.remove_file(root / "state.json")
    assert left(power, root) == {}


def test_discarding_takes_files_directories_and_links_but_not_what_a_link_names(disk: Disk, root: Path) -> None:
    (root / "kept").mkdir()
    (root / "kept" / "file").write_text("precious")
    (root / "link").symlink_to(root / "kept")
    (root / "directory").mkdir()
    (root / "directory" / "link").symlink_to(root / "kept")
    (root / "file").write_text("")
    for name in ("link", "directory", "file", "missing"):
        disk.discard(root / name)
    assert [path.name for path in root.iterdir()] == ["kept"]
    assert (root / "kept" / "file").read_text() == "precious"


def test_what_the_system_refuses_is_a_sentence_with_the_next_step(root: Path) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(
        StoreUnwritable, match=r"state\.json' can't be written \(Input/output error\): check the store's"
    ):
        Disk(fsync=broken).write_json(root / "state.json", {})
    with pytest.raises(StoreUnwritable):
        Disk().write_json(root / "missing" / "state.json", {})


def test_reading_tells_missing_from_damaged(disk: Disk, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(root / "state.json")
    (root / "state.json").mkdir()
    with pytest.raises(StoreDamaged, match="Is a directory"):
        read_json(root / "state.json")

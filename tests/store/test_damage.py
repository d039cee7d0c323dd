"""What a store makes of a directory that is none, of damage, and of a disk that refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from server.store import (
    Disk,
    NotAStore,
    State,
    Store,
    StoreDamaged,
    StoreUnwritable,
)
from tests.store.operations import SPEC, build, fill, noon, reopened

# What is no store.


def test_a_directory_with_other_things_is_left_alone(root: Path) -> None:
    (root / "uploads").mkdir(parents=True)
    (root / "uploads" / "holiday.jpg").write_text("precious")
    with pytest.raises(NotAStore, match=r"is not a model store .it holds 'uploads' and no format\.json"):
        Store.open(root)
    assert [path.name for path in root.rglob("*")] == ["uploads", "holiday.jpg"]


def test_a_fresh_volume_is_a_directory_for_a_store(root: Path) -> None:
    (root / "lost+found").mkdir(parents=True)
    Store.open(root).close()


def test_a_store_of_another_format_is_left_alone(store: Store, root: Path) -> None:
    store.close()
    (root / "format.json").write_text('{"format_version": 2}')
    with pytest.raises(NotAStore, match="is a store of format 2, this server reads format 1"):
        Store.open(root)


def test_a_root_that_is_a_file_is_refused(root: Path) -> None:
    root.write_text("")
    with pytest.raises(StoreUnwritable):
        Store.open(root)


# What is damaged.

DAMAGE = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"state": "MELTED"}', b'{"state": "AVAILABLE"}', b"[" * 100_000]


@pytest.mark.parametrize("damage", [*DAMAGE, None], ids=[*(repr(each[:20]) for each in DAMAGE), "missing"])
def test_a_damaged_record_fails_that_version_alone(store: Store, root: Path, damage: bytes | None) -> None:
    for text in ("one", "two"):
        build(store, "digits", text)
    store.activate("digits", 2)
    path = root / "models" / "digits" / "1" / "record.json"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    with reopened(store, root) as again:
        record = again.record("digits", 1)
        assert record.state is State.FAILED
        assert f"'{path}' is damaged" in record.reason
        assert again.damage == (record.reason,)
        assert again.active("digits") == 2
        assert (path.parent / "artifact" / "model.json").exists(), "the evidence is kept"
        again.delete("digits", 1)
        assert not path.parent.exists()


def test_a_built_version_whose_artifact_is_gone_has_failed(store: Store, root: Path) -> None:
    store.activate("digits", build(store, "digits", "one"))
    (store.artifact_dir("digits", 1) / "model.json").unlink()
    with reopened(store, root) as again:
        assert again.record("digits", 1).state is State.FAILED
        assert again.active("digits") is None
        assert len(again.damage) == 2
        assert "the active version 1 of model 'digits' is FAILED" in again.damage[1]


@pytest.mark.parametrize(
    "damage", ["", "[]", '{"version": "1"}', '{"version": true}', '{"version": 7}', '{"version": -1}']
)
def test_a_damaged_pointer_leaves_the_model_without_an_active_version(store: Store, root: Path, damage: str) -> None:
    store.activate("digits", build(store, "digits", "one"))
    (root / "models" / "digits" / "active.json").write_text(damage)
    with reopened(store, root) as again:
        assert again.active("digits") is None
        assert len(again.damage) == 1
        assert again.damage[0].endswith(("activate one", "activate another one"))
        assert again.activate("digits", 1).active
    with Store.open(root) as once_more:
        assert once_more.active("digits") == 1


@pytest.mark.parametrize("damage", ["", "{}", '{"last": null}', '{"last": 1, "deleted": "x"}'])
def test_damaged_numbers_go_on_after_the_highest_version_there_is(store: Store, root: Path, damage: str) -> None:
    build(store, "digits", "one")
    build(store, "digits", "two")
    (root / "models" / "digits" / "numbers.json").write_text(damage)
    with reopened(store, root) as again:
        assert "may come again" in again.damage[0]
        assert [record.state for record in again.versions("digits")] == [State.BUILT, State.BUILT]
        assert again.create_version("digits", SPEC).version == 3


def test_a_missing_spec_is_damage_not_a_crash(store: Store, root: Path) -> None:
    build(store, "digits", "one")
    (root / "models" / "digits" / "1" / "spec.json").unlink()
    with pytest.raises(StoreDamaged, match="it is missing"):
        store.spec("digits", 1)


def test_what_the_store_did_not_make_is_reported_and_left_alone(store: Store, root: Path, tmp_path: Path) -> None:
    build(store, "digits", "one")
    models = root / "models"
    (models / "notes.txt").write_text("mine")
    (models / ".cache").mkdir()
    (models / "digits" / "01").mkdir()
    (models / "digits" / "backup").mkdir()
    (models / "linked").symlink_to(tmp_path)
    (models / "digits" / "2").symlink_to(tmp_path)
    with reopened(store, root) as again:
        assert again.models() == ["digits"]
        assert [record.version for record in again.versions("digits")] == [1]
        named = {sentence.split("'")[1].removeprefix(f"{models}/") for sentence in again.damage}
        assert named == {"notes.txt", ".cache", "digits/01", "digits/backup", "linked", "digits/2"}
    assert (models / "notes.txt").read_text() == "mine"


# What the disk refuses.


class FullDisk:
    """A fault hook that finds the disk full at one step, counted from when ``left`` is set."""

    def __init__(self) -> None:
        self.left: int | None = None

    def __call__(self, step: str) -> None:
        if self.left is not None:
            if self.left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.left -= 1


def test_a_full_disk_is_a_sentence_and_the_store_goes_on(root: Path) -> None:
    disk = FullDisk()
    with Store.open(root, disk=Disk(fault=disk), now=noon) as store:
        build(store, "digits", "one")
        store.activate("digits", 1)
        for step in range(8):
            disk.left = step
            with pytest.raises(StoreUnwritable, match=r"No space left on device\): free some space"):
                store.create_version("digits", SPEC)
            disk.left = None
            assert [record.version for record in store.versions("digits")] == [1]
            assert store.active("digits") == 1
        version = store.create_version("digits", SPEC).version
        assert version > 1
        fill(store.staging_dir("digits", version), "two")
        store.commit("digits", version)
    with Store.open(root, now=noon) as again:
        assert again.damage == ()
        assert again.record("digits", version).state is State.BUILT


def test_a_commit_that_the_disk_refused_can_be_told_as_a_failure(root: Path) -> None:
    disk = FullDisk()
    with Store.open(root, disk=Disk(fault=disk), now=noon) as store:
        for step in range(4):
            version = store.create_version("digits", SPEC).version
            fill(store.staging_dir("digits", version), "one")
            disk.left = step
            with pytest.raises(StoreUnwritable) as caught:
                store.commit("digits", version)
            disk.left = None
            assert store.fail("digits", version, str(caught.value)).state is State.FAILED
    with Store.open(root, now=noon) as again:
        assert {record.state for record in again.versions("digits")} == {State.FAILED}

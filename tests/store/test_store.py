"""What a store promises to whoever doesn't pull the plug."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from server.store import (
    Conflict,
    Disk,
    InvalidName,
    ModelNotFound,
    NotAStore,
    State,
    Store,
    StoreDamaged,
    StoreError,
    StoreLocked,
    StoreUnwritable,
    VersionNotFound,
)
from server.store.recovery import STOPPED_WHILE_BUILDING, record_to_json
from tests.store.operations import SPEC, build, fill, noon

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with Store.open(root, now=noon) as opened:
        yield opened


def reopened(store: Store, root: Path) -> Store:
    store.close()
    return Store.open(root, now=noon)


# Life of a version.


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.models() == []
    assert store.damage == ()


def test_a_version_goes_from_building_to_built_to_active(store: Store) -> None:
    record = store.create_version("digits", SPEC)
    assert (record.model, record.version, record.state, record.active) == ("digits", 1, State.BUILDING, False)
    assert record.created_at == "2025-01-02T12:00:00+00:00"
    assert record.labels == {"team": "vision"}
    assert store.spec("digits", 1) == SPEC
    assert not list(store.staging_dir("digits", 1).iterdir())
    assert not list(store.source_dir("digits", 1).iterdir())

    fill(store.staging_dir("digits", 1), "one")
    assert store.commit("digits", 1).state is State.BUILT
    assert (store.artifact_dir("digits", 1) / "model.json").read_text() == "one"
    assert not store.source_dir("digits", 1).exists()
    assert not store.staging_dir("digits", 1).exists()
    assert store.active("digits") is None

    assert store.activate("digits", 1).active
    assert store.active("digits") == 1
    assert store.record("digits", 1).active


def test_what_was_built_and_active_is_there_when_the_store_is_opened_again(store: Store, root: Path) -> None:
    build(store, "digits", "one")
    build(store, "digits", "two")
    store.activate("digits", 2)
    before = store.versions("digits")
    with reopened(store, root) as again:
        assert again.versions("digits") == before
        assert again.active("digits") == 2
        assert (again.artifact_dir("digits", 2) / "model.json").read_text() == "two"
        assert again.damage == ()


def test_a_failed_version_keeps_its_reason_and_nothing_else(store: Store, root: Path) -> None:
    store.create_version("digits", SPEC)
    fill(store.staging_dir("digits", 1), "half")
    record = store.fail("digits", 1, "op Foo has no converter")
    assert (record.state, record.reason) == (State.FAILED, "op Foo has no converter")
    assert {path.name for path in store.staging_dir("digits", 1).parent.iterdir()} == {"record.json", "spec.json"}
    with reopened(store, root) as again:
        assert again.record("digits", 1) == record


def test_a_version_that_nobody_builds_any_more_has_failed_after_a_restart(store: Store, root: Path) -> None:
    store.create_version("digits", SPEC)
    with reopened(store, root) as again:
        record = again.record("digits", 1)
        assert (record.state, record.reason) == (State.FAILED, STOPPED_WHILE_BUILDING)
        assert again.damage == ()


def test_rolling_back_activates_an_older_version(store: Store) -> None:
    for text in ("one", "two"):
        store.activate("digits", build(store, "digits", text))
    store.activate("digits", 1)
    assert [record.active for record in store.versions("digits")] == [True, False]


def test_deactivating_leaves_the_versions(store: Store, root: Path) -> None:
    store.activate("digits", build(store, "digits", "one"))
    store.deactivate("digits")
    store.deactivate("digits")
    assert store.active("digits") is None
    with reopened(store, root) as again:
        assert again.active("digits") is None
        assert again.record("digits", 1).state is State.BUILT


# Numbers.


def test_a_number_is_never_given_out_twice(store: Store, root: Path) -> None:
    assert [store.create_version("digits", SPEC).version for _ in range(2)] == [1, 2]
    store.delete("digits", 2)
    assert store.create_version("digits", SPEC).version == 3
    store.delete("digits")
    with pytest.raises(ModelNotFound):
        store.versions("digits")
    assert store.create_version("digits", SPEC).version == 4
    store.delete("digits")
    with reopened(store, root) as again:
        assert again.models() == []
        assert again.create_version("digits", SPEC).version == 5
        assert again.create_version("other", SPEC).version == 1


def test_versions_made_at_once_from_many_threads_get_different_numbers(store: Store) -> None:
    def make() -> None:
        for _ in range(5):
            store.create_version("digits", SPEC)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.version for record in store.versions("digits")] == list(range(1, 41))


# Deleting.


def test_the_active_version_is_not_deleted_by_itself(store: Store) -> None:
    store.activate("digits", build(store, "digits", "one"))
    with pytest.raises(Conflict, match="is the active one: activate another version first, or delete the model"):
        store.delete("digits", 1)
    assert (store.artifact_dir("digits", 1) / "model.json").exists()


def test_deleting_a_model_removes_every_version_and_the_pointer(store: Store, root: Path) -> None:
    store.activate("digits", build(store, "digits", "one"))
    store.create_version("digits", SPEC)
    build(store, "other", "other")
    store.delete("digits")
    assert store.models() == ["other"]
    assert {path.name for path in (root / "models" / "digits").iterdir()} == {"numbers.json"}


def test_a_deleted_version_is_unknown(store: Store) -> None:
    build(store, "digits", "one")
    store.create_version("digits", SPEC)
    store.delete("digits", 1)
    with pytest.raises(VersionNotFound, match="model 'digits' has no version 1"):
        store.record("digits", 1)
    assert [record.version for record in store.versions("digits")] == [2]


# What is refused.

BAD_NAMES = ["", ".", "..", "../x", "a/b", "/etc", "a\0b", ".hidden", "-option", "a b", "x" * 101, "größe", "a\n"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_could_climb_is_refused_by_every_method(store: Store, root: Path, name: str) -> None:
    for call in (
        lambda: store.create_version(name, SPEC),
        lambda: store.versions(name),
        lambda: store.record(name, 1),
        lambda: store.active(name),
        lambda: store.spec(name, 1),
        lambda: store.source_dir(name, 1),
        lambda: store.staging_dir(name, 1),
        lambda: store.artifact_dir(name, 1),
        lambda: store.commit(name, 1),
        lambda: store.fail(name, 1, ""),
        lambda: store.activate(name, 1),
        lambda: store.deactivate(name),
        lambda: store.delete(name),
        lambda: store.delete(name, 1),
    ):
        with pytest.raises(InvalidName, match="is not allowed: use 1 to 100 letters"):
            call()
    assert not list((root / "models").iterdir())


@pytest.mark.parametrize("version", [0, -1, 2, 10**30])
def test_a_version_that_was_never_made_is_unknown(store: Store, version: int) -> None:
    with pytest.raises(ModelNotFound, match="model 'digits' is unknown: register it first"):
        store.record("digits", version)
    build(store, "digits", "one")
    for call in (store.record, store.spec, store.source_dir, store.commit, store.activate, store.delete):
        with pytest.raises(VersionNotFound):
            call("digits", version)


def test_only_a_built_version_can_be_activated_or_read(store: Store) -> None:
    store.create_version("digits", SPEC)
    with pytest.raises(Conflict, match="version 1 of model 'digits' is BUILDING, not BUILT"):
        store.activate("digits", 1)
    store.fail("digits", 1, "op Foo has no converter")
    with pytest.raises(Conflict, match="is FAILED, not BUILT: op Foo has no converter"):
        store.activate("digits", 1)
    with pytest.raises(Conflict):
        store.artifact_dir("digits", 1)


def test_only_a_version_that_is_being_built_can_be_committed_or_fail(store: Store) -> None:
    build(store, "digits", "one")
    with pytest.raises(Conflict, match="is BUILT, not BUILDING"):
        store.commit("digits", 1)
    with pytest.raises(Conflict, match="is BUILT, not BUILDING"):
        store.fail("digits", 1, "late")


def test_an_artifact_without_a_manifest_is_not_committed(store: Store) -> None:
    store.create_version("digits", SPEC)
    with pytest.raises(StoreDamaged, match=r"the builder left no model\.json"):
        store.commit("digits", 1)
    assert store.record("digits", 1).state is State.BUILDING


@pytest.mark.parametrize("make", ["link", "directory link", "pipe"])
def test_an_artifact_with_a_link_or_pipe_is_not_committed(store: Store, root: Path, make: str) -> None:
    store.create_version("digits", SPEC)
    staging = store.staging_dir("digits", 1)
    fill(staging, "one")
    if make == "pipe":
        os.mkfifo(staging / "extra")
    else:
        (staging / "extra").symlink_to("/etc/passwd" if make == "link" else "/etc")
    with pytest.raises(StoreDamaged, match="neither a file nor a directory"):
        store.commit("digits", 1)
    assert store.record("digits", 1).state is State.BUILDING


def test_serving_states_are_never_written(store: Store) -> None:
    record = store.create_version("digits", SPEC)
    with pytest.raises(ValueError, match="AVAILABLE is not a durable state"):
        record_to_json(replace(record, state=State.AVAILABLE))


# Who else has it open.


def test_a_second_process_is_told_who_has_the_store(store: Store, root: Path) -> None:
    script = "import sys; from pathlib import Path; from server.store import Store; Store.open(Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert f"is in use by process {os.getpid()}: stop it, or give this server another --store" in done.stderr


def test_a_store_is_locked_against_its_own_process_too(store: Store, root: Path) -> None:
    with pytest.raises(StoreLocked) as caught:
        Store.open(root)
    assert caught.value.pid == os.getpid()


def test_a_lock_file_that_a_dead_process_left_locks_nobody_out(store: Store, root: Path) -> None:
    store.close()
    (root / "lock").write_text("999999\n")
    Store.open(root).close()


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


def test_state_files_are_readable_by_people(store: Store, root: Path) -> None:
    store.activate("digits", build(store, "digits", "one"))
    assert json.loads((root / "models" / "digits" / "active.json").read_text()) == {"version": 1}
    assert json.loads((root / "models" / "digits" / "1" / "record.json").read_text())["state"] == "BUILT"


def test_every_error_of_the_store_is_one_of_its_tree() -> None:
    for kind in (Conflict, InvalidName, ModelNotFound, NotAStore, StoreDamaged, StoreLocked, StoreUnwritable):
        assert issubclass(kind, StoreError)

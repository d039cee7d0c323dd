"""What a store promises to whoever doesn't pull the plug."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from server.store import (
    Conflict,
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
from tests.store.operations import SPEC, build, fill, reopened

ROOT = Path(__file__).parents[2]


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
    assert (store.active("digits"), store.is_unloaded("digits")) == (None, True)
    with reopened(store, root) as again:
        assert (again.active("digits"), again.is_unloaded("digits")) == (None, True)
        assert again.record("digits", 1).state is State.BUILT
        assert again.damage == ()


def test_what_loading_a_model_means_is_what_answered_last_else_the_newest_built_version(
    store: Store, root: Path
) -> None:
    for text in ("one", "two", "three"):
        build(store, "digits", text)
    store.create_version("digits", SPEC)
    assert store.loadable("digits") == 3
    store.activate("digits", 2)
    store.deactivate("digits")
    with reopened(store, root) as again:
        assert again.loadable("digits") == 2
        again.delete("digits", 2)
        assert again.loadable("digits") == 3
    with Store.open(root) as last:
        assert (last.is_unloaded("digits"), last.loadable("digits"), last.damage) == (True, 3, ())
        last.activate("digits", 1)
        assert (last.is_unloaded("digits"), last.loadable("digits")) == (False, 1)


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
        lambda: store.is_unloaded(name),
        lambda: store.loadable(name),
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


# What it shows of itself.


def test_state_files_are_readable_by_people(store: Store, root: Path) -> None:
    store.activate("digits", build(store, "digits", "one"))
    assert json.loads((root / "models" / "digits" / "active.json").read_text()) == {
        "version": 1,
        "history": [{"version": 1, "at": "2025-01-02T12:00:00+00:00", "by": ""}],
    }
    assert json.loads((root / "models" / "digits" / "1" / "record.json").read_text())["state"] == "BUILT"


def test_every_error_of_the_store_is_one_of_its_tree() -> None:
    for kind in (Conflict, InvalidName, ModelNotFound, NotAStore, StoreDamaged, StoreLocked, StoreUnwritable):
        assert issubclass(kind, StoreError)

"""A store that can't be written, or is no longer there: what is in it is served, and nothing else is left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server.store import Conflict, State, Store, StoreLocked, StoreUnwritable
from tests.store.operations import SOURCE, SPEC, build, noon, register, upload

_NOBODY = 65_534


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user can read."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    for directory in [path, *path.rglob("*")]:
        if directory.is_dir():
            directory.chmod(0o755)
    shutil.rmtree(path)


def as_somebody_else(act: Callable[[], None]) -> None:
    """Do it in a process that may not write what this one has made: root may write everything."""
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(_NOBODY)
            act()
        except BaseException:  # noqa: BLE001 - told by the exit code, and read in the test's output
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_read_only_store_is_served_and_refuses_every_change(shared: Path) -> None:
    root = shared / "store"
    with Store.open(root, now=noon) as store:
        build(store, "a", "one")
        store.activate("a", 1)
        build(store, "a", "two")
        upload(store)
        store.create_version("a", SPEC, source=SOURCE, archive=store.upload_dir() / "upload-1")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    for path in [root, *root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)

    def act() -> None:
        with Store.open(root, now=noon) as store, Store.open(root, now=noon) as another:
            assert store.is_read_only
            assert (store.active("a"), another.active("a")) == (1, 1)
            assert (store.artifact_dir("a", 1) / "model.json").read_text() == "one"
            assert store.spec("a", 1) == SPEC
            assert store.activate("a", 1).active
            assert store.record("a", 3).state is State.FAILED  # nothing can be built here
            for change in (
                lambda: store.create_version("a", SPEC),
                lambda: store.activate("a", 2),
                lambda: store.delete("a", 2),
                lambda: store.delete("a"),
            ):
                with pytest.raises(StoreUnwritable, match="is read-only: what is in it is served"):
                    change()
            assert store.active("a") == 1

    as_somebody_else(act)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_who_may_only_read_waits_for_who_writes(shared: Path) -> None:
    root = shared / "store"
    with Store.open(root, now=noon):

        def act() -> None:
            with pytest.raises(StoreLocked, match=str(os.getppid())):
                Store.open(root, now=noon)

        as_somebody_else(act)


def test_a_store_that_is_not_there_and_can_not_be_made_is_said(shared: Path) -> None:
    shared.chmod(0o555)

    def act() -> None:
        with pytest.raises(StoreUnwritable, match="Permission denied"):
            Store.open(shared / "store", now=noon)

    as_somebody_else(act)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_that_is_deleted_under_the_server_is_not_made_anew_in_part(tmp_path: Path, *, replaced: bool) -> None:
    root = tmp_path / "store"
    with Store.open(root, now=noon) as store:
        build(store, "a", "one")
        build(store, "a", "two")
        store.activate("a", 1)
        shutil.rmtree(root)
        if replaced:
            Store.open(root, now=noon).close()
        before = sorted(root.rglob("*"))
        for change in (
            lambda: store.create_version("b", SPEC),
            lambda: store.activate("a", 2),
            lambda: store.delete("a", 2),
            lambda: store.delete("a"),
        ):
            with pytest.raises(StoreUnwritable, match="was deleted or replaced while the server runs"):
                change()
        assert sorted(root.rglob("*")) == before
        assert [record.version for record in store.versions("a")] == [1, 2]
        assert store.active("a") == 1
    # What is there now, or nothing, is a store that can be opened.
    Store.open(root, now=noon).close()


def test_a_build_that_ends_the_server_every_time_is_given_up(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Store.open(root, now=noon) as store:
        build(store, "a", "one")
        for _ in range(3):
            store.create_version("a", SPEC)
        upload(store)
        store.create_version("a", SPEC, source=SOURCE, archive=store.upload_dir() / "upload-1")
    for _ in range(5):
        # Stopped in good order: as often as you like.
        with Store.open(root, now=noon) as store:
            assert store.record("a", 5).state is State.BUILDING
            assert store.archive("a", 5).read_text() == "an archive"
            assert store.source("a", 5) == SOURCE
            store.interrupt("a", 5)
    states = []
    for _ in range(4):
        with Store.open(root, now=noon) as store:
            states.append(store.record("a", 5).state)
    assert states == [State.BUILDING] * 3 + [State.FAILED]
    with Store.open(root, now=noon) as store:
        assert "the server ended 3 times while it was being built" in store.record("a", 5).reason
        assert not store.source_dir("a", 5).exists()
        with pytest.raises(Conflict):
            store.interrupt("a", 5)


def test_a_registered_upload_is_in_the_store_or_still_where_it_was(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", now=noon) as store:
        upload(store)
        store.create_version("a", SPEC)
        store.create_version("a", SPEC)
        store.create_version("a", SPEC)
        register(store)
        assert not (store.upload_dir() / "upload-1").exists()
        assert store.archive("a", 4).read_text() == "an archive"

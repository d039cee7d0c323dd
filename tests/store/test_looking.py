"""Looking at a store that a server has open, and what of it may go by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from server.store import Disk, NotAStore, State, Store, StoreView
from server.store.collection import collectable
from server.store.index import ModelIndex
from server.store.records import VersionRecord
from tests.store.operations import SPEC, build, leave_a_mess, prepare


def everything(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in root.rglob("*")}


def test_a_store_that_is_open_is_looked_at_and_not_changed(root: Path) -> None:
    store = prepare(root, Disk())
    leave_a_mess(store)
    before = everything(root)
    view = StoreView(root)
    assert everything(root) == before
    assert view.models() == ["a", "b"]
    assert [(record.version, record.active) for record in view.versions("a")] == [
        (1, True),
        (2, False),
        (3, False),
        (4, False),
    ]
    assert view.labels("a") == {"stable": 1}
    assert [check.faults for check in view.checks(read=True)] == [()] * 6
    assert (view.chosen("a", None), view.chosen("a", 2)) == (1, 2)
    store.close()


def test_checking_names_each_damaged_version_and_each_way_in_which_it_is(store: Store, root: Path) -> None:
    for text in ("one", "two", "three", "four"):
        build(store, "a", text)
    pb = {number: store.artifact_dir("a", number) / "saved_model" / "saved_model.pb" for number in (1, 2, 3)}
    os.truncate(pb[1], 2)
    pb[2].chmod(0o644)
    pb[2].write_text("Graph of two")
    (pb[3].parent / "extra").write_text("")
    quick = {check.record.version: check.faults for check in StoreView(root).checks(read=False)}
    assert [bool(quick[number]) for number in (1, 2, 3, 4)] == [True, False, False, False]
    read = {check.record.version: check.faults for check in StoreView(root).checks(read=True)}
    assert "has 2 bytes, expected 12" in read[1][0]
    assert "has the SHA-256" in read[2][0]
    assert "was not in it when it was built" in read[3][0]
    assert read[4] == ()


def test_a_directory_of_something_else_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        StoreView(tmp_path)
    assert list(tmp_path.iterdir()) == []


# What may go.


def index(**states: State) -> ModelIndex:
    """Return versions by ``v1=State.BUILT``."""
    versions = {
        int(name[1:]): VersionRecord(model="m", version=int(name[1:]), state=state) for name, state in states.items()
    }
    return ModelIndex(versions=versions, last=len(states))


BUILT = State.BUILT


def test_the_newest_are_kept_and_whatever_is_in_use() -> None:
    model = index(**{f"v{number}": BUILT for number in range(1, 8)})
    assert collectable(model, keep=3) == [1, 2, 3, 4]
    assert collectable(model, keep=9) == []
    model.active, model.labels = 1, {"stable": 2}
    assert collectable(model, keep=3) == [3, 4]
    assert collectable(model, keep=3, in_use={3}) == [4]
    model.active, model.unloaded = None, 4
    assert collectable(model, keep=1) == [1, 3, 5, 6]


def test_what_a_registrations_label_leads_to_is_kept() -> None:
    model = index(v1=BUILT, v2=BUILT, v3=BUILT)
    model.versions[1] = VersionRecord(model="m", version=1, state=BUILT, labels={"golden": ""})
    assert collectable(model, keep=1) == [2]


def test_what_is_being_built_or_waits_to_serve_stays_and_failures_are_kept_as_many() -> None:
    model = index(v1=State.FAILED, v2=State.BUILDING, v3=BUILT, v4=State.FAILED, v5=BUILT, v6=State.BUILDING)
    assert collectable(model, keep=1) == [1, 3]
    model.versions[3] = VersionRecord(model="m", version=3, state=BUILT, awaits_switch=True)
    model.versions[1] = VersionRecord(model="m", version=1, state=State.FAILED, awaits_switch=True)
    assert collectable(model, keep=1) == [1]


def test_the_store_deletes_what_may_go_and_nothing_else(store: Store, root: Path) -> None:
    for text in ("one", "two", "three", "four", "five"):
        build(store, "a", text)
    for number in (5, 1):  # none waits to serve any more
        store.activate("a", number)
    store.set_label("a", "stable", 2)
    store.create_version("a", SPEC)
    for number in store.collectable("a", keep=1):
        store.delete("a", number)
    assert [record.version for record in store.versions("a")] == [1, 2, 5, 6]
    assert store.sweep() == 0

"""Following a store that another server has open: seen where it lies, and never changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.store import FollowedStore, NotAStore, Store, StoreUnwritable
from tests.store.operations import build
from tests.store.test_looking import everything


def test_what_the_owner_does_is_seen_at_the_next_look_and_nothing_is_touched(store: Store, root: Path) -> None:
    build(store, "a", "one")
    with FollowedStore(root) as one, FollowedStore(root) as two:
        assert one.models() == ["a"]
        assert one.active("a") is None
        store.activate("a", 1)
        before = everything(root)
        assert one.refresh() == {"a"}
        assert one.refresh() == set()
        assert two.refresh() == {"a"}
        assert (one.active("a"), one.artifact_dir("a", 1)) == (1, store.artifact_dir("a", 1))
        assert everything(root) == before
        build(store, "a", "two")
        store.set_label("a", "next", 2)
        build(store, "b", "one")
        assert one.refresh() == {"a", "b"}
        assert one.labels("a") == {"next": 2}
        store.delete("b")
        assert one.refresh() == {"b"}
        assert one.models() == ["a"]


def test_nothing_can_be_changed_and_it_is_said_where_it_can(store: Store, root: Path) -> None:
    build(store, "a", "one")
    with FollowedStore(root) as followed:
        assert followed.is_read_only
        assert not followed.is_mine("a", 1)
        for change in (
            lambda: followed.check_new("a", n_bytes=0),
            lambda: followed.create_version("a", {}),
            lambda: followed.activate("a", 1),
            lambda: followed.deactivate("a"),
            lambda: followed.set_label("a", "next", 1),
            lambda: followed.remove_label("a", "next"),
            lambda: followed.delete("a"),
            lambda: followed.commit("a", 1),
            lambda: followed.fail("a", 1, "reason"),
        ):
            with pytest.raises(StoreUnwritable, match="is another server's, which this one follows: change it there"):
                change()
        assert followed.collectable("a", keep=1) == []


def test_a_store_that_is_gone_leaves_what_was_known_and_comes_back(store: Store, root: Path) -> None:
    build(store, "a", "one")
    with FollowedStore(root) as followed:
        away = root.with_name("away")
        root.rename(away)
        assert followed.refresh() == set()
        assert "is no store" in followed.status()["trouble"]
        assert followed.models() == ["a"]
        away.rename(root)
        assert followed.refresh() == set()
        assert followed.status()["trouble"] == ""


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        FollowedStore(tmp_path)


def test_its_own_directory_goes_when_it_is_closed(store: Store, root: Path) -> None:
    followed = FollowedStore(root)
    own = followed.upload_dir()
    assert own.is_dir()
    assert not own.is_relative_to(root)
    followed.close()
    assert not own.exists()
    assert root.is_dir()

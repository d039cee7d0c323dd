"""Labels, the history of activations, and what rolling back means; quotas."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.store import Conflict, InvalidLabel, InvalidName, QuotaExceeded, State, Store, VersionNotFound
from server.store.activation import MAX_HISTORY, Activation, rollback_target
from server.store.index import MAX_LABELS
from server.store.quotas import Quotas
from tests.store.operations import SPEC, build, fill, noon, reopened


def test_a_label_stays_where_it_was_set_whatever_is_activated(store: Store, root: Path) -> None:
    for text in ("one", "two", "three"):
        build(store, "a", text)
    store.activate("a", 1)
    store.set_label("a", "stable", 1)
    store.set_label("a", "canary", 2)
    store.activate("a", 3)
    with reopened(store, root) as again:
        assert again.labels("a") == {"stable": 1, "canary": 2}
        again.set_label("a", "stable", 2)
        again.remove_label("a", "canary")
        again.remove_label("a", "canary")
        assert again.labels("a") == {"stable": 2}
        assert [sorted(record.labels) for record in again.versions("a")] == [["team"], ["stable", "team"], ["team"]]


def test_a_label_that_was_set_outranks_those_of_registrations(store: Store) -> None:
    for text in ("one", "two"):
        build(store, "a", text)
    store.set_label("a", "team", 1)
    assert [sorted(record.labels) for record in store.versions("a")] == [["team"], []]
    store.remove_label("a", "team")
    assert [dict(record.labels) for record in store.versions("a")] == [{"team": "vision"}] * 2


def test_what_a_label_leads_to_is_not_deleted_by_itself(store: Store, root: Path) -> None:
    for text in ("one", "two"):
        build(store, "a", text)
    store.set_label("a", "stable", 1)
    with pytest.raises(Conflict, match="the label 'stable' leads to version 1 of model 'a': move or remove it first"):
        store.delete("a", 1)
    store.delete("a")
    build(store, "a", "three")
    assert store.labels("a") == {}
    with reopened(store, root) as again:
        assert again.labels("a") == {}
        assert again.damage == ()


def test_a_label_leads_to_a_version_that_is_built(store: Store) -> None:
    store.create_version("a", SPEC)
    with pytest.raises(Conflict, match="is BUILDING, not BUILT"):
        store.set_label("a", "stable", 1)
    with pytest.raises(VersionNotFound):
        store.set_label("a", "stable", 2)


@pytest.mark.parametrize("label", ["", ".", "a/b", "a:b", "x" * 101, "größe", "a\n", "-a"])
def test_a_label_that_no_path_could_name_is_refused(store: Store, label: str) -> None:
    build(store, "a", "one")
    with pytest.raises(InvalidLabel):
        store.set_label("a", label, 1)


def test_labels_of_a_model_are_bounded(store: Store) -> None:
    build(store, "a", "one")
    for number in range(MAX_LABELS):
        store.set_label("a", f"l{number}", 1)
    with pytest.raises(InvalidLabel, match=f"one more than the {MAX_LABELS} of a model"):
        store.set_label("a", "one-more", 1)
    store.set_label("a", "l0", 1)


@pytest.mark.parametrize("damage", ["", "[]", '{"stable": "1"}', '{"stable": 7}'])
def test_damaged_labels_are_told_and_lead_nowhere(store: Store, root: Path, damage: str) -> None:
    build(store, "a", "one")
    (root / "models" / "a" / "labels.json").write_text(damage)
    with reopened(store, root) as again:
        assert again.labels("a") == {}
        assert len(again.damage) == 1
        again.set_label("a", "stable", 1)


# History.


def test_who_activated_what_is_remembered(store: Store, root: Path) -> None:
    for text in ("one", "two"):
        build(store, "a", text)
    store.activate("a", 1, by="ann")
    store.activate("a", 2, by="bob")
    store.activate("a", 2, by="eve")  # nothing changes
    store.deactivate("a", by="ann")
    with reopened(store, root) as again:
        assert [(each.version, each.by) for each in again.history("a")] == [(1, "ann"), (2, "bob"), (None, "ann")]
        assert {each.at for each in again.history("a")} == {"2025-01-02T12:00:00+00:00"}
        assert again.previous("a") == 2


def test_rolling_back_twice_goes_back_two_versions_and_never_forward(store: Store) -> None:
    for text in ("one", "two", "three"):
        store.activate("a", build(store, "a", text))
    for expected in (2, 1):
        assert store.previous("a") == expected
        store.activate("a", expected)
    with pytest.raises(Conflict, match="nothing to roll back to"):
        store.previous("a")


def test_what_was_deleted_is_not_rolled_back_to(store: Store) -> None:
    for text in ("one", "two", "three"):
        store.activate("a", build(store, "a", text))
    store.delete("a", 2)
    assert store.previous("a") == 1


def test_history_is_bounded(store: Store, root: Path) -> None:
    for text in ("one", "two"):
        build(store, "a", text)
    for number in range(MAX_HISTORY + 20):
        store.activate("a", 1 + number % 2)
    with reopened(store, root) as again:
        assert len(again.history("a")) == MAX_HISTORY


def test_a_history_that_can_not_be_read_is_no_reason_not_to_serve(store: Store, root: Path) -> None:
    build(store, "a", "one")
    (root / "models" / "a" / "active.json").write_text('{"version": 1, "history": [1, {"version": "x"}, null]}')
    with reopened(store, root) as again:
        assert (again.active("a"), again.history("a"), again.damage) == (1, [], ())


@pytest.mark.parametrize(
    ("history", "active", "expected"),
    [
        ([], None, None),
        ([1], 1, None),
        ([1, 2], 2, 1),
        ([1, 2, 1], 1, None),
        ([1, 2, 3, 1, 4], 4, 1),
        ([1, 2, None], None, 2),
        ([1, 2, None, 2], 2, 1),
        ([2], 3, 2),
    ],
)
def test_rolling_back_goes_by_the_history_as_by_a_stack(
    history: list[int | None], active: int | None, expected: int | None
) -> None:
    assert rollback_target([Activation(version, "") for version in history], active, range(1, 9)) == expected


# Quotas.


def test_more_versions_than_allowed_are_refused_before_they_are_built(store: Store) -> None:
    store.quotas = Quotas(max_versions=2)
    build(store, "a", "one")
    build(store, "a", "two")
    with pytest.raises(QuotaExceeded, match=r"model 'a' has 2 versions, as many as it may \(max_versions\)"):
        store.create_version("a", SPEC)
    build(store, "b", "one")
    store.delete("a", 1)
    assert store.create_version("a", SPEC).version == 3


def test_bytes_are_refused_when_the_artifact_is_written_and_shared_files_count_once(store: Store) -> None:
    build(store, "a", "one")
    contents = store.contents("a", 1)
    assert contents is not None
    store.quotas = Quotas(max_model_bytes=contents.n_bytes + 100)
    build(store, "a", "one")  # takes nothing
    version = store.create_version("a", SPEC).version
    fill(store.staging_dir("a", version), "two")
    with pytest.raises(QuotaExceeded, match=r"model 'a' would have \d+ bytes, of \d+ that it may \(max_model_bytes\)"):
        store.commit("a", version)
    assert store.fail("a", version, "too large").state is State.FAILED
    build(store, "b", "two")
    store.quotas = Quotas(max_store_bytes=contents.n_bytes)
    with pytest.raises(QuotaExceeded, match=r"the store would have \d+ bytes, of \d+ that it may \(max_store_bytes\)"):
        store.create_version("c", SPEC)


def test_what_would_be_refused_is_known_before_it_comes(store: Store) -> None:
    build(store, "a", "one")
    store.check_new("a", n_bytes=10**12)
    store.quotas = Quotas(max_versions=1)
    with pytest.raises(QuotaExceeded, match="max_versions"):
        store.check_new("a", n_bytes=0)
    store.check_new("b", n_bytes=0)
    with pytest.raises(InvalidName):
        store.check_new("../b", n_bytes=0)
    store.quotas = Quotas(max_store_bytes=store.bytes_on_disk() + 1_000)
    store.check_new("b", n_bytes=999)
    with pytest.raises(QuotaExceeded, match="max_store_bytes"):
        store.check_new("b", n_bytes=1_000)
    assert store.models() == ["a"]


def test_an_upload_counts_before_it_is_built(root: Path) -> None:
    with Store.open(root, now=noon, quotas=Quotas(max_store_bytes=1_000)) as store:
        archive = store.upload_dir() / "upload"
        archive.write_bytes(b"x" * 1_001)
        with pytest.raises(QuotaExceeded):
            store.create_version("a", SPEC, source={"kind": "archive"}, archive=archive)
        assert archive.exists()
        assert store.models() == []

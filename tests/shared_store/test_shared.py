"""Several servers over one bucket: what one does the others see, whole, and nobody's work is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from server.shared_store import Bucket, SharedStore, shared
from server.shared_store.bucket import Changed
from server.store import (
    Conflict,
    ModelNotFound,
    QuotaExceeded,
    Quotas,
    State,
    StoreDamaged,
    StoreUnreachable,
    Superseded,
    VersionNotFound,
)
from tests.shared_store.conftest import Opening
from tests.store.operations import SPEC, fill

WEIGHTS = "saved_model/variables/variables.data"


def build(store: SharedStore, name: str, text: str) -> int:
    version = store.create_version(name, SPEC, source={"kind": "import", "target": "m:f"}).version
    fill(store.staging_dir(name, version), text)
    store.commit(name, version)
    return version


class Broken(Bucket):
    """A bucket that can be cut off, before the n-th call that writes or at once."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, shown="memory")
        self.writes_left = 10**9

    def _write(self) -> None:
        self.writes_left -= 1
        self._look()

    def _look(self) -> None:
        if self.writes_left < 0:
            raise StoreUnreachable("memory can't be reached: it is cut off")

    def read(self, name: str) -> tuple[bytes, str] | None:
        self._look()
        return super().read(name)

    def list(self, prefix: str) -> list[shared.Any]:
        self._look()
        return super().list(prefix)

    def create(self, name: str, data: bytes) -> str:
        self._write()
        return super().create(name, data)

    def replace(self, name: str, data: bytes, *, tag: str) -> str:
        self._write()
        return super().replace(name, data, tag=tag)

    def write(self, name: str, data: bytes) -> None:
        self._write()
        super().write(name, data)

    def upload(self, name: str, path: Path) -> None:
        self._write()
        super().upload(name, path)

    def download(self, name: str) -> Iterator[bytes] | None:
        self._look()
        return super().download(name)


# What one does and the other sees.


def test_what_one_registers_the_other_fetches_byte_by_byte(opening: Opening, tmp_path: Path) -> None:
    one, two = opening("one"), opening("two")
    build(one, "a", "1")
    with pytest.raises(ModelNotFound):
        two.record("a", 1)
    assert two.refresh() == {"a"}
    assert two.refresh() == set()
    assert two.record("a", 1) == one.record("a", 1)
    assert (two.is_mine("a", 1), one.is_mine("a", 1)) == (False, True)
    two.fetch("a", 1)
    two.fetch("a", 1)
    assert (two.artifact_dir("a", 1) / WEIGHTS).read_text() == "weights of 1" * 100
    assert two.spec("a", 1) == SPEC
    assert two.contents("a", 1) == one.contents("a", 1)
    assert two.source("a", 1) == {"kind": "import", "target": "m:f"}


def test_activations_labels_and_deletions_are_everybodys(opening: Opening) -> None:
    one, two = opening("one"), opening("two")
    for text in ("1", "2", "3"):
        one.activate("a", build(one, "a", text), by="ann")
    two.refresh()
    two.set_label("a", "stable", 1)
    two.activate("a", 2, by="bob")
    assert one.refresh() == {"a"}
    assert (one.active("a"), one.labels("a"), one.previous("a")) == (2, {"stable": 1}, 1)
    assert [(each.version, each.by) for each in one.history("a")] == [(1, "ann"), (2, "ann"), (3, "ann"), (2, "bob")]
    with pytest.raises(Conflict, match="the label 'stable' leads to version 1"):
        one.delete("a", 1)
    one.remove_label("a", "stable")
    one.delete("a", 1)
    one.deactivate("a")
    two.refresh()
    assert (two.active("a"), two.is_unloaded("a"), two.loadable("a")) == (None, True, 2)
    with pytest.raises(VersionNotFound):
        two.record("a", 1)
    two.delete("a")
    one.refresh()
    assert one.models() == []
    assert build(one, "a", "4") == 4


def test_two_servers_that_write_at_once_never_give_out_a_number_twice(opening: Opening) -> None:
    stores = [opening(name) for name in ("one", "two", "three")]
    given: list[int] = []
    lock = threading.Lock()

    def register(store: SharedStore) -> None:
        for _ in range(5):
            version = build(store, "a", "x")
            with lock:
                given.append(version)

    threads = [threading.Thread(target=register, args=(store,)) for store in stores for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == list(range(1, 31))
    for store in stores:
        store.refresh()
        assert [record.version for record in store.versions("a")] == list(range(1, 31))
        assert {record.state for record in store.versions("a")} == {State.BUILT}


def test_who_read_it_before_somebody_else_wrote_it_reads_it_again(opening: Opening, bucket: Bucket) -> None:
    one = opening("one")
    build(one, "a", "1")
    data, tag = bucket.read("models/a.json") or (b"", "")
    bucket.replace("models/a.json", data + b" ", tag=tag)
    with pytest.raises(Changed):
        bucket.replace("models/a.json", data, tag=tag)
    with pytest.raises(Changed):
        bucket.create("models/a.json", data)
    one.activate("a", 1)
    assert one.active("a") == 1


def test_a_build_that_a_newer_one_overtook_elsewhere_does_not_take_its_place(opening: Opening) -> None:
    one, two = opening("one"), opening("two")
    build(one, "a", "1")
    two.refresh()
    build(two, "a", "2")
    two.activate("a", 2, newest=True)
    with pytest.raises(Superseded, match="version 2 of model 'a' is newer than version 1, and answers"):
        one.activate("a", 1, newest=True)
    assert one.activate("a", 1).active, "who asks for it gets it"


def test_files_that_are_here_are_not_fetched_again(opening: Opening, tmp_path: Path) -> None:
    one = opening("one")
    broken = Broken(MemoryStore())
    one, two = opening("three", broken), opening("four", broken)
    for text in ("1", "2"):
        build(one, "a", text)
    two.refresh()
    two.fetch("a", 1)
    fetched: list[str] = []
    download = broken.download
    broken.download = lambda name: (fetched.append(name), download(name))[1]  # type: ignore[method-assign]
    two.fetch("a", 2)
    contents = two.contents("a", 2)
    assert contents is not None
    assert f"blobs/{contents.files['saved_model/tokens.txt'].sha256}" not in fetched
    assert len(fetched) == len(contents.files), "all but the one that they share, and the options"


# What goes wrong.


def test_what_the_bucket_holds_and_is_not_what_was_built_is_not_taken(opening: Opening, bucket: Bucket) -> None:
    one, two = opening("one"), opening("two")
    build(one, "a", "1")
    contents = one.contents("a", 1)
    assert contents is not None
    two.refresh()
    bucket.write(f"blobs/{contents.files[WEIGHTS].sha256}", b"something else")
    with pytest.raises(StoreDamaged, match="it has the SHA-256"):
        two.fetch("a", 1)
    bucket.delete(f"blobs/{contents.files[WEIGHTS].sha256}")
    with pytest.raises(StoreDamaged, match="it is missing in the bucket"):
        two.fetch("a", 1)
    assert list(two.upload_dir().iterdir()) == []


def test_whoever_dies_at_any_write_of_a_registration_leaves_what_was_or_what_is_to_be(tmp_path: Path) -> None:
    memory = MemoryStore()
    watching = SharedStore.open(Bucket(memory, shown="memory"), tmp_path / "watching")
    n_writes = 0
    while True:
        broken = Broken(memory)
        root = tmp_path / f"dying-{n_writes}"
        dying = SharedStore.open(broken, root)
        name = f"m{n_writes}"
        broken.writes_left = n_writes
        try:
            version = dying.create_version(name, SPEC, source={"kind": "import"}).version
            fill(dying.staging_dir(name, version), name)
            dying.commit(name, version)
            done = True
        except StoreUnreachable:
            done = False
        dying.close()  # as a killed process does
        watching.refresh()
        states = {record.state for record in watching.versions(name)} if name in watching.models() else set()
        assert states <= {State.BUILDING, State.BUILT}
        if State.BUILT in states:
            watching.fetch(name, 1)
        # It is started again, and goes on where it was.
        again = SharedStore.open(Bucket(memory, shown="memory"), root)
        for record in again.versions(name) if name in again.models() else []:
            if record.state is State.BUILDING:
                assert again.is_mine(name, record.version)
                fill(again.staging_dir(name, record.version), name)
                again.commit(name, record.version)
        again.close()
        watching.refresh()
        if n_writes:
            assert [record.state for record in watching.versions(name)] == [State.BUILT]
            watching.fetch(name, 1)
        else:
            assert name not in watching.models()
        if done:
            break
        n_writes += 1
    watching.close()
    assert n_writes >= 5


def test_a_bucket_that_is_gone_changes_nothing_of_what_is_here(opening: Opening, tmp_path: Path) -> None:
    broken = Broken(MemoryStore())
    one = opening("one", broken)
    one.activate("a", build(one, "a", "1"))
    broken.writes_left = -1
    assert one.refresh() == set()
    assert "memory can't be reached: it is cut off (since " in one.trouble
    one.fetch("a", 1)
    one.activate("a", 1)
    assert (one.active("a"), one.record("a", 1).state) == (1, State.BUILT)
    for change in (
        lambda: one.create_version("a", SPEC),
        lambda: one.set_label("a", "x", 1),
        lambda: one.delete("a"),
        lambda: one.deactivate("a"),
    ):
        with pytest.raises(StoreUnreachable):
            change()
    one.close()
    again = opening("one", broken)
    assert again.trouble
    assert (again.models(), again.active("a")) == (["a"], 1)
    again.fetch("a", 1)
    assert (again.artifact_dir("a", 1) / WEIGHTS).is_file()
    broken.writes_left = 10**9
    again.refresh()
    assert again.trouble == ""
    again.set_label("a", "x", 1)


def test_a_version_that_could_not_be_published_is_when_the_bucket_is_back(opening: Opening) -> None:
    broken = Broken(MemoryStore())
    one = opening("one", broken)
    version = one.create_version("a", SPEC, source={"kind": "import"}).version
    fill(one.staging_dir("a", version), "1")
    broken.writes_left = 2
    with pytest.raises(StoreUnreachable):
        one.commit("a", version)
    with pytest.raises(StoreUnreachable):
        one.fail("a", version, "the bucket can't be reached")
    broken.writes_left = 10**9
    assert one.refresh() == {"a"}
    assert one.record("a", 1).state is State.BUILT


def test_what_nobody_builds_any_more_has_failed(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = opening("one"), opening("two")
    one.create_version("a", SPEC, source={"kind": "import"})
    two.refresh()
    assert two.record("a", 1).state is State.BUILDING
    monkeypatch.setattr(shared, "_LEASE_S", -1.0)
    two.refresh()
    assert "is gone: register it again" in two.record("a", 1).reason
    monkeypatch.undo()
    fill(one.staging_dir("a", 1), "1")
    with pytest.raises(Conflict, match="is FAILED, not BUILDING"):
        one.commit("a", 1)


def test_a_build_without_its_source_has_failed_after_a_restart(opening: Opening) -> None:
    one = opening("one")
    one.create_version("a", SPEC)
    one.close()
    again = opening("one")
    assert again.record("a", 1).state is State.FAILED
    assert again.record("a", 1).reason.startswith("the server stopped while it was being built")


def test_the_directory_keeps_what_is_in_use_and_the_newest(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one, two = opening("one"), opening("two")
    for number in range(1, 7):
        one.activate("a", build(one, "a", str(number)))
    two.refresh()
    for number in range(1, 7):
        two.fetch("a", number)
    two.activate("a", 1)
    two.set_label("a", "stable", 2)

    def here() -> list[int]:
        return sorted(int(path.name) for path in (tmp_path / "two" / "models" / "a").iterdir() if path.name.isdigit())

    two.refresh()
    assert here() == [1, 2, 3, 4, 5, 6], "they were fetched lately"
    monkeypatch.setattr(shared, "_FRESH_S", -1.0)
    two.refresh()
    assert here() == [1, 2, 5, 6]
    one.refresh()
    one.delete("a", 6)
    two.refresh()
    assert here() == [1, 2, 5]
    two.fetch("a", 3)
    assert (two.artifact_dir("a", 3) / WEIGHTS).read_text() == "weights of 3" * 100


def test_quotas_hold_for_what_all_have_together(opening: Opening) -> None:
    one, two = opening("one"), opening("two")
    two.quotas = Quotas(max_versions=2)
    build(one, "a", "1")
    build(one, "a", "2")
    with pytest.raises(QuotaExceeded, match="max_versions"):
        two.create_version("a", SPEC)
    two.refresh()
    with pytest.raises(QuotaExceeded, match="max_versions"):
        two.check_new("a", n_bytes=0)
    two.check_new("b", n_bytes=0)


def test_an_object_that_is_no_document_is_damage(opening: Opening, bucket: Bucket) -> None:
    one = opening("one")
    build(one, "a", "1")
    bucket.write("models/a.json", b'{"format_version": 2}')
    with pytest.raises(StoreDamaged, match=r"models/a.json"):
        one.refresh()

"""Files of artifacts are kept once, whatever versions and models have them, and never changed under one of these."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from server.store import Disk, State, Store
from server.store.contents import Contents, digest_tree
from tests.store.operations import SHARED, SPEC, build, fill, noon, reopened

TOKENS = "saved_model/tokens.txt"
WEIGHTS = "saved_model/variables/variables.data"


def blobs(root: Path) -> set[str]:
    return {path.name for path in (root / "blobs").iterdir()}


def test_a_file_that_two_models_have_is_on_the_disk_once(store: Store, root: Path) -> None:
    for name, text in (("a", "one"), ("a", "two"), ("b", "one")):
        build(store, name, text)
    shared = [store.artifact_dir(*each) / TOKENS for each in (("a", 1), ("a", 2), ("b", 1))]
    assert len({path.stat().st_ino for path in shared}) == 1
    assert {path.read_text() for path in shared} == {SHARED * 100}
    one, two = store.artifact_dir("a", 1) / WEIGHTS, store.artifact_dir("a", 2) / WEIGHTS
    assert one.stat().st_ino != two.stat().st_ino
    assert one.stat().st_ino == (store.artifact_dir("b", 1) / WEIGHTS).stat().st_ino
    first, third = store.contents("a", 1), store.contents("b", 1)
    assert first is not None
    assert first == third == digest_tree(store.artifact_dir("a", 1))
    assert blobs(root) >= {file.sha256 for file in first.files.values()}


def test_what_the_last_version_had_alone_goes_with_it(store: Store, root: Path) -> None:
    for text in ("one", "two", "one"):
        build(store, "a", text)
    contents = {number: store.contents("a", number) for number in (1, 2)}
    assert contents[1] is not None
    assert contents[2] is not None
    weights = {number: each.files[WEIGHTS].sha256 for number, each in contents.items() if each is not None}
    store.delete("a", 1)
    assert blobs(root) >= set(weights.values()), "version 3 has it too"
    store.delete("a", 2)
    assert weights[2] not in blobs(root)
    assert (store.artifact_dir("a", 3) / WEIGHTS).read_text() == "weights of one" * 100
    store.delete("a")
    assert blobs(root) == set()


def test_a_file_of_an_artifact_can_not_be_written_by_mistake(store: Store) -> None:
    build(store, "a", "one")
    assert {path.stat().st_mode & 0o222 for path in store.artifact_dir("a", 1).rglob("*") if path.is_file()} == {0}


def test_a_file_that_its_builder_has_another_name_for_is_copied(store: Store, tmp_path: Path) -> None:
    version = store.create_version("a", SPEC).version
    fill(store.staging_dir("a", version), "one")
    os.link(store.staging_dir("a", version) / WEIGHTS, tmp_path / "mine")
    store.commit("a", version)
    (tmp_path / "mine").chmod(0o644)
    (tmp_path / "mine").write_text("something else")
    assert (store.artifact_dir("a", version) / WEIGHTS).read_text() == "weights of one" * 100


def test_damage_does_not_spread_to_a_version_that_is_built_later(store: Store) -> None:
    build(store, "a", "one")
    weights = store.artifact_dir("a", 1) / WEIGHTS
    weights.chmod(0o644)
    weights.write_text("Weights of one" * 100)
    build(store, "a", "one")
    assert (store.artifact_dir("a", 2) / WEIGHTS).read_text() == "weights of one" * 100
    contents = store.contents("a", 1)
    assert contents is not None
    assert len(contents.differences(store.artifact_dir("a", 1))) == 1
    assert contents.differences(store.artifact_dir("a", 2)) == []


class NoLinks(Disk):
    """A file system without hard links."""

    def link(self, path: Path, name: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def test_without_hard_links_nothing_is_shared_and_all_works(root: Path) -> None:
    with Store.open(root, disk=NoLinks(), now=noon) as store:
        for text in ("one", "one"):
            build(store, "a", text)
        assert blobs(root) == set()
        store.activate("a", 2)
        store.delete("a", 1)
    with Store.open(root, now=noon, verify=True) as again:
        assert again.damage == ()
        assert again.active("a") == 2


def test_a_store_that_was_copied_without_its_links_serves_and_shares_again(store: Store, root: Path) -> None:
    build(store, "a", "one")
    for path in (root / "blobs").iterdir():
        contents = path.read_bytes()
        path.unlink()
        path.write_bytes(contents)
    with reopened(store, root) as again:
        assert (again.damage, blobs(root)) == ((), set())
        build(again, "a", "one")
        build(again, "a", "one")
        assert (again.artifact_dir("a", 2) / WEIGHTS).stat().st_nlink == 3


# Integrity.


@pytest.mark.parametrize("verify", [False, True])
def test_a_file_that_was_cut_short_fails_its_version_when_the_store_is_opened(
    store: Store, root: Path, *, verify: bool
) -> None:
    build(store, "a", "one")
    build(store, "a", "two")
    store.activate("a", 2)
    os.truncate(store.artifact_dir("a", 1) / WEIGHTS, 3)
    store.close()
    with Store.open(root, now=noon, verify=verify) as again:
        record = again.record("a", 1)
        assert record.state is State.FAILED
        assert f"'{WEIGHTS}' has 3 bytes, expected 1400; register the model again" in record.reason
        assert again.damage == (record.reason,)
        assert again.active("a") == 2


def test_a_changed_byte_is_found_by_reading_alone(store: Store, root: Path) -> None:
    build(store, "a", "one")
    weights = store.artifact_dir("a", 1) / WEIGHTS
    weights.chmod(0o644)
    weights.write_text("Weights of one" * 100)
    store.close()
    with Store.open(root, now=noon) as quick:
        assert quick.damage == ()
    with Store.open(root, now=noon, verify=True) as thorough:
        assert thorough.record("a", 1).state is State.FAILED
        assert "has the SHA-256" in thorough.damage[0]


def test_a_store_of_an_earlier_release_is_served_and_its_files_are_taken_up(store: Store, root: Path) -> None:
    for text in ("one", "one"):
        build(store, "a", text)
    before = store.contents("a", 1)
    for number in (1, 2):
        (root / "models" / "a" / str(number) / "contents.json").unlink()
    for blob in (root / "blobs").iterdir():
        blob.unlink()
    (root / "blobs").rmdir()
    with reopened(store, root) as again:
        assert again.damage == ()
        assert again.contents("a", 1) is None
        again.activate("a", 1)
        again.record_contents("a", 1)
        again.record_contents("a", 2)
        assert again.contents("a", 1) == again.contents("a", 2) == before
        assert (again.artifact_dir("a", 1) / WEIGHTS).stat().st_nlink == 3
    with Store.open(root, now=noon, verify=True) as last:
        assert last.damage == ()
        assert last.contents("a", 2) == before


# Records of contents come from outside, too.

FILE = {"sha256": "0" * 64, "bytes": 1}


@pytest.mark.parametrize(
    "files",
    [
        {},
        [],
        None,
        {"../x": FILE},
        {"/etc/passwd": FILE},
        {"a//b": FILE},
        {"a/./b": FILE},
        {"a\\b": FILE},
        {"a\0b": FILE},
        {"a\nb": FILE},
        {"": FILE},
        {"x" * 256: FILE},
        {"x/" * 600 + "x": FILE},
        {"a": FILE, "a/b": FILE},
        {"a": {"sha256": "0" * 63, "bytes": 1}},
        {"a": {"sha256": "G" * 64, "bytes": 1}},
        {"a": {"sha256": "0" * 64, "bytes": -1}},
        {"a": {"sha256": "0" * 64, "bytes": True}},
        {"a": {"sha256": "0" * 64}},
        {"a": "0" * 64},
        {str(number): FILE for number in range(10_001)},
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_record_of_contents_that_could_climb_or_fill_the_disk_is_refused(files: object) -> None:
    with pytest.raises(ValueError, match=r"must|no|not|is a file and"):
        Contents.from_json({"sha256": "0" * 64, "files": files})


def test_a_record_of_contents_is_read_as_it_was_written_and_not_if_it_was_changed(store: Store) -> None:
    build(store, "a", "one")
    contents = store.contents("a", 1)
    assert contents is not None
    assert Contents.from_json(contents.to_json()) == contents
    with pytest.raises(ValueError, match="is not that of the files"):
        Contents.from_json({**contents.to_json(), "sha256": "0" * 64})

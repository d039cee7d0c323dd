"""A version as a file: what comes in is what went out, and nothing that only looks like it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server.store import (
    Conflict,
    ImportRefused,
    InvalidName,
    QuotaExceeded,
    Quotas,
    State,
    Store,
    StoreDamaged,
    StoreView,
    VersionNotFound,
    export_version,
    import_version,
)
from server.store.contents import Contents, FileDigest, digest_file
from tests.store.operations import SPEC, fill, noon, reopened


def build(store: Store, name: str, text: str) -> int:
    version = store.create_version(name, SPEC).version
    fill(store.staging_dir(name, version), text, manifest=True)
    store.commit(name, version)
    return version


@pytest.fixture
def exported(store: Store, root: Path, tmp_path: Path) -> Path:
    build(store, "a", "one")
    export_version(StoreView(root), "a", 1, tmp_path / "a.tar")
    return tmp_path / "a.tar"


def test_a_version_is_in_another_store_as_it_was_and_does_not_serve_by_that(
    store: Store, root: Path, exported: Path, tmp_path: Path
) -> None:
    with Store.open(tmp_path / "other", now=noon) as other:
        record = import_version(other, exported)
        assert (record.model, record.version, record.state, record.active) == ("a", 1, State.BUILT, False)
        assert (dict(record.labels), record.created_at) == ({"team": "vision"}, store.record("a", 1).created_at)
        assert other.spec("a", 1) == SPEC
        assert other.contents("a", 1) == store.contents("a", 1)
        assert import_version(other, exported, name="b").model == "b"
        assert import_version(other, exported).version == 2
        weights = [other.artifact_dir(*each) / "model.json" for each in (("a", 1), ("a", 2), ("b", 1))]
        assert len({path.stat().st_ino for path in weights}) == 1
        assert list(other.upload_dir().iterdir()) == []
    with Store.open(tmp_path / "other", now=noon, verify=True) as again:
        assert again.damage == ()
        assert again.active("a") is None
        assert again.activate("a", 2).active


def test_equal_versions_are_equal_files_that_any_tar_reads(root: Path, exported: Path, tmp_path: Path) -> None:
    export_version(StoreView(root), "a", 1, tmp_path / "again.tar")
    assert digest_file(exported) == digest_file(tmp_path / "again.tar")
    with tarfile.open(exported) as tar:
        names = tar.getnames()
        assert names[0] == "rowwise.json"
        assert all(name.startswith("blobs/") for name in names[1:])
        head = json.load(tar.extractfile("rowwise.json") or io.BytesIO())
        path = "saved_model/saved_model.pb"
        blob = tar.extractfile(f"blobs/{head['contents']['files'][path]['sha256']}")
        assert blob is not None
        assert blob.read() == b"graph of one"


def test_what_is_damaged_is_not_exported(store: Store, root: Path, tmp_path: Path) -> None:
    build(store, "a", "one")
    weights = store.artifact_dir("a", 1) / "saved_model" / "saved_model.pb"
    weights.chmod(0o644)
    weights.write_text("Graph of one")
    with pytest.raises(StoreDamaged, match="it is not what was built"):
        export_version(StoreView(root), "a", 1, tmp_path / "a.tar")
    assert list(tmp_path.glob("*.tar")) == []
    assert not list(tmp_path.glob(".new-*"))


def test_nothing_is_overwritten_and_what_is_not_built_is_not_exported(
    store: Store, root: Path, exported: Path, tmp_path: Path
) -> None:
    with pytest.raises(FileExistsError):
        export_version(StoreView(root), "a", 1, exported)
    store.create_version("a", SPEC)
    with pytest.raises(Conflict):
        export_version(StoreView(root), "a", 2, tmp_path / "b.tar")
    with pytest.raises(VersionNotFound):
        export_version(StoreView(root), "a", 3, tmp_path / "b.tar")


# What is refused.

Members = list[tuple[tarfile.TarInfo, bytes]]


def members_of(path: Path) -> Members:
    with tarfile.open(path) as tar:
        return [(member, (tar.extractfile(member) or io.BytesIO()).read()) for member in tar]


def rewritten(path: Path, change: Callable[[Members], Members]) -> None:
    members = change(members_of(path))
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data))


def with_head(members: Members, **changes: Any) -> Members:
    head = json.dumps({**json.loads(members[0][1]), **changes}).encode()
    member = tarfile.TarInfo("rowwise.json")
    member.size = len(head)
    return [(member, head), *members[1:]]


def another(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, len(data)
    for key, value in more.items():
        setattr(member, key, value)
    return member, data


def climbing(members: Members) -> Members:
    contents = Contents.from_json(json.loads(members[0][1])["contents"])
    files = {**contents.files, "../../escaped": FileDigest("0" * 64, 1)}
    return with_head(members, contents=Contents(files).to_json())


def flipped(members: Members) -> Members:
    member, data = members[1]
    return [members[0], (member, bytes([data[0] ^ 1]) + data[1:]), *members[2:]]


def without_manifest(members: Members) -> Members:
    files = dict(Contents.from_json(json.loads(members[0][1])["contents"]).files)
    sha256 = files.pop("model.json").sha256
    changed = with_head(members, contents=Contents(files).to_json())
    return [each for each in changed if each[0].name != f"blobs/{sha256}"]


def huge(members: Members) -> Members:
    files = {f"f{number}": FileDigest("0" * 64, 2**40) for number in range(9)}
    return with_head(members, contents=Contents(files).to_json())


REFUSED: dict[str, tuple[Callable[[Members], Members], str]] = {
    "nothing": (lambda members: [], "does not begin with rowwise.json|no tar|cut short"),
    "no head": (lambda members: members[1:], "does not begin with rowwise.json"),
    "another format": (lambda members: with_head(members, format_version=2), "it is of format 2"),
    "a name that climbs": (lambda members: with_head(members, model="../a"), "may not be used"),
    "a name that is none": (lambda members: with_head(members, model=["a"]), "may not be used"),
    "options that are none": (lambda members: with_head(members, spec={"buckets": "many"}), "can't be read"),
    "options of a kind": (lambda members: with_head(members, spec=[1]), "can't be read"),
    "contents that are none": (lambda members: with_head(members, contents={"files": {}}), "can't be read"),
    "a date of a megabyte": (lambda members: with_head(members, created_at="x" * 2**20), "version or date is none"),
    "a path that climbs": (climbing, "can't be read"),
    "a changed byte": (flipped, "a file has the SHA-256"),
    "a missing file": (lambda members: members[:-1], "does not follow|no tar"),
    "a file too many": (lambda members: [members[0], another("blobs/x"), *members[1:]], "does not follow"),
    "a file that climbs": (lambda members: [members[0], another("../x"), *members[1:]], "does not follow"),
    "a link": (
        lambda members: [members[0], another("blobs/x", kind=tarfile.SYMTYPE, linkname="/etc/passwd"), *members[1:]],
        "no plain file",
    ),
    "a pipe": (lambda members: [members[0], another("blobs/x", kind=tarfile.FIFOTYPE), *members[1:]], "no plain file"),
    "a device": (lambda members: [members[0], another("blobs/x", kind=tarfile.CHRTYPE), *members[1:]], "no plain file"),
    "a long name's header": (lambda members: [another("x" * 300), *members], "no plain file"),
    "no manifest": (without_manifest, "its model.json is none"),
    "terabytes that it has not": (huge, "announces more bytes than it has"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_what_it_says_is_refused_and_leaves_nothing(exported: Path, tmp_path: Path, case: str) -> None:
    change, message = REFUSED[case]
    rewritten(exported, change)
    with Store.open(tmp_path / "other", now=noon) as other:
        with pytest.raises(ImportRefused, match=message):
            import_version(other, exported)
        assert other.models() == []
        assert list(other.upload_dir().iterdir()) == []
        assert list((tmp_path / "other" / "blobs").iterdir()) == []
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("kept", [0, 100, 512, 700, 5_000, -1_500])
def test_a_file_that_was_cut_short_is_refused(exported: Path, tmp_path: Path, kept: int) -> None:
    exported.write_bytes(exported.read_bytes()[:kept])
    with Store.open(tmp_path / "other", now=noon) as other:
        with pytest.raises(ImportRefused):
            import_version(other, exported)
        assert other.models() == []


def test_what_is_no_tar_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x1f\x8b" + bytes(5_000))
    for path in (tmp_path / "x", tmp_path / "missing", tmp_path):
        with pytest.raises(ImportRefused):
            import_version(store, path)


def test_quotas_and_names_hold_for_imports_before_anything_is_written(exported: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "other", now=noon, quotas=Quotas(max_model_bytes=10)) as other:
        with pytest.raises(QuotaExceeded):
            import_version(other, exported)
        with pytest.raises(InvalidName):
            import_version(other, exported, name="../x")
        other.quotas = Quotas(max_versions=1)
        import_version(other, exported)
        with pytest.raises(QuotaExceeded, match="max_versions"):
            import_version(other, exported)


def test_a_number_that_was_given_elsewhere_is_taken_once(store: Store, exported: Path, root: Path) -> None:
    scratch = store.scratch_dir() / "artifact"
    fill(scratch, "seven", manifest=True)
    assert store.add("a", {}, scratch, number=7).version == 7
    again = store.scratch_dir() / "artifact"
    fill(again, "seven", manifest=True)
    with pytest.raises(Conflict, match="version 7 of model 'a' is there already, or was"):
        store.add("a", {}, again, number=7)
    assert store.create_version("a", SPEC).version == 8
    with reopened(store, root) as once_more:
        assert [record.version for record in once_more.versions("a")] == [1, 7, 8]

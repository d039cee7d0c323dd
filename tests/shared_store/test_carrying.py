"""A bucket that is looked at, checked, exported from and imported into, beside the servers that share it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from typer.testing import CliRunner, Result

from rowwise.cli.app import app
from server.shared_store import Bucket, BucketView, SharedStore, import_into_bucket, open_bucket
from server.shared_store.publishing import object_of_blob
from server.store import ImportRefused, NotAStore, State, StoreDamaged, StoreView, export_version
from tests.e2e.bucket_server import BUCKET, BucketServer
from tests.shared_store.conftest import Opening
from tests.store.operations import SPEC, fill

GRAPH = "saved_model/saved_model.pb"


def build(store: SharedStore, text: str, *, name: str = "a") -> int:
    version = store.create_version(name, SPEC, source={"kind": "import", "target": "m:f"}).version
    fill(store.staging_dir(name, version), text, manifest=True)
    store.commit(name, version)
    return version


def faults(bucket: Bucket, *, read: bool = True) -> dict[int, tuple[str, ...]]:
    return {check.record.version: check.faults for check in BucketView(bucket).checks(read=read) if check.faults}


def test_a_view_tells_what_the_servers_do(opening: Opening, bucket: Bucket) -> None:
    one = opening("one")
    build(one, "1")
    build(one, "2")
    one.activate("a", 1)
    one.fail("a", one.create_version("a", SPEC).version, "it took too long")
    view = BucketView(bucket)
    assert view.versions("a") == one.versions("a")
    assert view.spec("a", 2) == one.spec("a", 2)
    assert view.chosen("a", None) == 1
    assert [check.contents is not None for check in view.checks(read=True)] == [True, True, False]
    assert faults(bucket) == {}


def test_each_damage_is_told_of_each_version_that_has_it(opening: Opening, bucket: Bucket) -> None:
    one = opening("one")
    build(one, "1")
    build(one, "2")
    files = BucketView(bucket).files("a", 1).files
    bucket.write(object_of_blob(files[GRAPH].sha256), b"x" * files[GRAPH].n_bytes)
    assert faults(bucket, read=False) == {}, "its size is right"
    assert list(faults(bucket)) == [1]
    assert "has the SHA-256" in faults(bucket)[1][0]
    shared = files.keys() & {
        path for path, file in BucketView(bucket).files("a", 2).files.items() if file in files.values()
    }
    bucket.delete(object_of_blob(files[min(shared)].sha256))
    assert list(faults(bucket, read=False)) == [1, 2]
    bucket.write("models/b.json", b"{}")
    view = BucketView(bucket)
    assert (view.models(), len(view.damage)) == (["a"], 1)


def test_options_that_are_not_those_of_the_version_are_damage(opening: Opening, bucket: Bucket) -> None:
    build(opening("one"), "1")
    document = json.loads(bucket.read("models/a.json")[0])  # type: ignore[index]
    bucket.write(object_of_blob(document["versions"]["1"]["spec"]), b"{}")
    assert "its options" in faults(bucket)[1][0]
    with pytest.raises(StoreDamaged):
        BucketView(bucket).spec("a", 1)


def test_an_empty_bucket_is_no_store(bucket: Bucket) -> None:
    with pytest.raises(NotAStore):
        BucketView(bucket)


def test_what_is_exported_comes_in_as_the_next_version_and_its_servers_take_it_up(
    opening: Opening, bucket: Bucket, tmp_path: Path
) -> None:
    one = opening("one")
    build(one, "1")
    file = tmp_path / "a.tar"
    export_version(BucketView(bucket), "a", 1, file)
    record = import_into_bucket(bucket, file)
    assert (record.version, record.state, record.active, dict(record.labels)) == (2, State.BUILT, False, SPEC["labels"])
    assert import_into_bucket(bucket, file, activate=True).active
    assert faults(bucket) == {}
    assert one.refresh() == {"a"}
    assert one.active("a") == 3
    one.fetch("a", 3)
    assert one.contents("a", 3) == one.contents("a", 1)
    assert one.spec("a", 3) == one.spec("a", 1)
    elsewhere = Bucket(MemoryStore(), shown="elsewhere")
    assert import_into_bucket(elsewhere, file, name="b").version == 1
    assert BucketView(elsewhere).models() == ["b"]


def test_a_file_that_was_changed_comes_into_no_bucket(opening: Opening, bucket: Bucket, tmp_path: Path) -> None:
    build(opening("one"), "1")
    file = tmp_path / "a.tar"
    export_version(BucketView(bucket), "a", 1, file)
    data = bytearray(file.read_bytes())
    data[len(data.rstrip(b"\0")) - 1] ^= 1
    file.write_bytes(data)
    other = Bucket(MemoryStore(), shown="other")
    with pytest.raises(ImportRefused):
        import_into_bucket(other, file)
    assert other.list("") == []


def test_an_export_of_damaged_files_leaves_no_file(opening: Opening, bucket: Bucket, tmp_path: Path) -> None:
    build(opening("one"), "1")
    files = BucketView(bucket).files("a", 1).files
    bucket.write(object_of_blob(files[GRAPH].sha256), b"x" * (files[GRAPH].n_bytes + 1))
    with pytest.raises(StoreDamaged):
        export_version(BucketView(bucket), "a", 1, tmp_path / "a.tar")
    bucket.delete(object_of_blob(files[GRAPH].sha256))
    with pytest.raises(StoreDamaged):
        export_version(BucketView(bucket), "a", 1, tmp_path / "a.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Version 1 of model ``a``, active, in a bucket of a real server."""
    with BucketServer() as running:
        for key, value in running.environment.items():
            monkeypatch.setenv(key, value)
        url = f"s3://{BUCKET}/team"
        with SharedStore.open(open_bucket(url), tmp_path / "one") as store:
            build(store, "1")
            store.activate("a", 1)
        yield url


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["store", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def told(*arguments: object, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code).stdout)


def test_every_command_works_on_a_bucket(url: str, tmp_path: Path) -> None:
    at = ("--store", url)
    assert [(each["model"], each["active"]) for each in told("ls", *at)["versions"]] == [("a", True)]
    assert "a" in run("ls", *at).stdout
    out = told("export", "a", tmp_path / "a.tar", *at)
    imported = told("import", tmp_path / "a.tar", *at, "--activate")
    assert (imported["version"], imported["active"]) == (2, True)
    listed = told("ls", "a", *at)["versions"]
    assert [each["sha256"] for each in listed] == [out["sha256"]] * 2
    assert told("verify", *at)["sound"]
    assert "2 versions, 0 damaged" in run("verify", "a", *at).stdout
    assert told("gc", *at) == {"files": 0, "bytes": 0, "dry_run": False}
    run("gc", *at, "--keep", 1, code=2)
    # From the bucket into a directory.
    told("import", tmp_path / "a.tar", "--store", tmp_path / "other")
    assert StoreView(tmp_path / "other").files("a", 1).sha256 == out["sha256"]
    bucket = open_bucket(url)
    bucket.delete(bucket.list("blobs/")[0].name)
    assert not told("verify", "--quick", *at, code=1)["sound"]


@pytest.mark.parametrize("command", ["ls", "verify", "export"])
def test_a_place_that_is_no_bucket_or_an_empty_one_is_said_to_be_so(url: str, tmp_path: Path, command: str) -> None:
    more = ["a", tmp_path / "x.tar"] if command == "export" else []
    run(command, *more, "--store", "s3://", code=2)
    assert "is no store" in run(command, *more, "--store", f"{url}/empty", code=1).stderr

"""``rowwise store``: on a store that a server may have open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rowwise.cli.app import app
from server.store import Store
from tests.store.operations import SPEC, fill, noon


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Versions 1 to 4 of model ``a``, of which 4 is active and 1 labelled; and ``b``."""
    with Store.open(tmp_path / "store", now=noon) as store:
        for name, text in (("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("b", "1")):
            version = store.create_version(name, SPEC).version
            fill(store.staging_dir(name, version), text, manifest=True)
            store.commit(name, version)
            store.activate(name, version)
        store.set_label("a", "stable", 1)
    return tmp_path / "store"


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["store", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def told(*arguments: object, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code).stdout)


def test_ls_tells_versions_labels_and_bytes_beside_a_running_server(root: Path) -> None:
    with Store.open(root, now=noon):
        listed = told("ls", "--store", root)
        versions = [(each["model"], each["version"], each["active"]) for each in listed["versions"]]
        assert versions == [("a", 1, False), ("a", 2, False), ("a", 3, False), ("a", 4, True), ("b", 1, True)]
        assert listed["bytes"] < sum(each["bytes"] for each in listed["versions"]), "they share a file"
        assert [each["version"] for each in told("ls", "b", "--store", root)["versions"]] == [1]
        assert "stable team" in run("ls", "a", "--store", root).stdout


def test_verify_ends_with_1_and_names_what_is_damaged(root: Path) -> None:
    assert told("verify", "--store", root)["sound"]
    assert "5 versions, 0 damaged" in run("verify", "--store", root).stdout
    path = root / "models" / "a" / "2" / "artifact" / "saved_model" / "saved_model.pb"
    path.chmod(0o644)
    path.write_text("Graph of 2")
    assert told("verify", "--quick", "--store", root)["sound"]
    found = told("verify", "--store", root, code=1)
    assert [(each["model"], each["version"]) for each in found["versions"] if each["faults"]] == [("a", 2)]
    assert (
        "DAMAGED  a version 2: 'saved_model/saved_model.pb' has the SHA-256"
        in run("verify", "--store", root, code=1).stdout
    )
    run("verify", "b", "--store", root)


def test_gc_keeps_the_newest_and_what_is_in_use_and_says_first_what_it_would_do(root: Path) -> None:
    (root / "blobs" / ("0" * 64)).write_text("nobody's")
    would = told("gc", "--keep", 1, "--dry-run", "--store", root)
    assert (would["deleted"], [each["version"] for each in would["would_go"]]) == ([], [2, 3])
    done = told("gc", "--keep", 1, "--store", root)
    assert [each["version"] for each in done["deleted"]] == [2, 3]
    assert done["bytes"] > 0
    assert [each["version"] for each in told("ls", "a", "--store", root)["versions"]] == [1, 4]
    assert told("verify", "--store", root)["sound"]
    with Store.open(root):
        assert "is in use by process" in run("gc", "--store", root, code=1).stderr


def test_a_version_goes_out_and_comes_in_elsewhere(root: Path, tmp_path: Path) -> None:
    out = told("export", "a", tmp_path / "a.tar", "--store", root)
    assert out["version"] == 4
    run("export", "a:2", tmp_path / "a2.tar", "--store", root)
    other = tmp_path / "other"
    record = told("import", tmp_path / "a.tar", "--store", other)
    assert (record["version"], record["active"], record["labels"]) == (1, False, {"team": "vision"})
    record = told("import", tmp_path / "a2.tar", "--as", "c", "--activate", "--store", other)
    assert (record["model"], record["version"], record["active"]) == ("c", 1, True)
    listed = told("ls", "a", "--store", other)["versions"][0]
    assert listed["sha256"] == out["sha256"]
    assert "is there already" in run("export", "a", tmp_path / "a.tar", "--store", root, code=1).stderr
    (tmp_path / "a.tar").write_bytes(b"x" * 2_000)
    assert "error: it is no tar" in run("import", tmp_path / "a.tar", "--store", other, code=1).stderr


@pytest.mark.parametrize("command", ["ls", "verify", "export"])
def test_a_directory_that_is_no_store_is_said_to_be_none(tmp_path: Path, command: str) -> None:
    more = ["a", tmp_path / "x.tar"] if command == "export" else []
    assert "is no store" in run(command, *more, "--store", tmp_path, code=1).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("which", ["a:x", "a:0", "a:", "a:-1", "a:1:2"])
def test_what_is_no_version_is_told(root: Path, tmp_path: Path, which: str) -> None:
    run("export", which, tmp_path / "x.tar", "--store", root, code=2)
    assert "has no version 9" in run("export", "a:9", tmp_path / "x.tar", "--store", root, code=1).stderr

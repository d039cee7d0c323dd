"""All that can be seen of a store, and what must hold in every one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from server.store import Disk, State, Store
from tests.store.operations import noon

Snapshot = dict[str, Any]


def skip(descriptor: int) -> None:
    """Take the place of os.fsync where no power is cut."""


def files(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def snapshot(root: Path) -> Snapshot:
    """Open the store and return all that can be seen of it; check what must hold in every store."""
    with Store.open(root, disk=Disk(fsync=skip), now=noon) as store:
        assert store.damage == ()
        seen: Snapshot = {}
        for name in store.models():
            for record in store.versions(name):
                entry = record.to_json()
                entry["spec"] = store.spec(name, record.version)
                paths = {path.name for path in (root / "models" / name / str(record.version)).iterdir()}
                if record.state is State.BUILT:
                    entry["artifact"] = files(store.artifact_dir(name, record.version))
                    assert paths - {"contents.json"} == {"record.json", "spec.json", "artifact"}
                    contents = store.contents(name, record.version)
                    entry["contents"] = None if contents is None else contents.to_json()
                    if contents is not None:
                        assert contents.differences(store.artifact_dir(name, record.version)) == []
                elif record.state is State.BUILDING:
                    entry["source"] = files(store.source_dir(name, record.version))
                    assert set(entry["source"]) == {"source.json", "archive"}
                    assert files(store.staging_dir(name, record.version)) == {}
                    assert paths == {"record.json", "spec.json", "source", "staging"}
                else:
                    assert record.state is State.FAILED
                    assert record.reason
                    assert paths == {"record.json", "spec.json"}
                seen[f"{name}/{record.version}"] = entry
        leftovers = [path for path in root.rglob("*") if path.name.startswith(".new-")]
        assert not leftovers
        assert not list((root / "trash").iterdir())
        assert not list((root / "uploads").iterdir())
        assert all(path.stat().st_nlink > 1 for path in (root / "blobs").iterdir()), "a file that nobody has is kept"
        for name in store.models():
            seen[f"{name}: labels"] = store.labels(name)
            seen[f"{name}: history"] = [each.to_json() for each in store.history(name)]
    return seen

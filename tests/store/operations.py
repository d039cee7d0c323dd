"""What can be done to a store, as pairs of a preparation and the act that is interrupted.

``python -m tests.store.operations DIRECTORY OPERATION`` prepares ``DIRECTORY/0``, ``1``, ``2``... and in each one kills
the process that does the operation (SIGKILL) before its first, second, third... durable step, until it gets through;
prints the steps as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from server.artifact import Manifest
from server.signature import ModelSignature
from server.store import Disk, Store, StoreView, export_version, import_version

SPEC = {"max_batch": 8, "labels": {"team": "vision"}}
#: What every artifact has a file of.
SHARED = "the same in all of them"
STOPPED = "op Foo has no converter"


def noon() -> datetime:
    return datetime(2025, 1, 2, 12, tzinfo=UTC)


def fill(directory: Path, text: str, *, manifest: bool = False) -> None:
    """Write an artifact as a builder does: without any care for power cuts. ``manifest``: with one that can be read."""
    (directory / "saved_model" / "variables").mkdir(parents=True)
    if manifest:
        signature = ModelSignature(inputs=(), outputs=())
        Manifest(
            name=text, version=1, signature=signature, entries={}, tensorflow_version="2", built_at="2025-01-02"
        ).write(directory)
    else:
        (directory / "model.json").write_text(text)
    (directory / "saved_model" / "saved_model.pb").write_text(f"graph of {text}")
    (directory / "saved_model" / "variables" / "variables.data").write_text(f"weights of {text}" * 100)
    (directory / "saved_model" / "tokens.txt").write_text(SHARED * 100)


def reopened(store: Store, root: Path) -> Store:
    store.close()
    return Store.open(root, now=noon)


def build(store: Store, name: str, text: str) -> int:
    """Register and build a version."""
    version = store.create_version(name, SPEC).version
    (store.source_dir(name, version) / "upload.tar.gz").write_text("archive")
    fill(store.staging_dir(name, version), text)
    store.commit(name, version)
    return version


def prepare(root: Path, disk: Disk) -> Store:
    """Open a store with two models: ``a`` with versions 1 (active), 2 and 3 (failed); ``b`` with version 1."""
    store = Store.open(root, disk=disk, now=noon)
    build(store, "a", "a1")
    build(store, "a", "a2")
    store.activate("a", 1, by="ann")
    store.set_label("a", "stable", 1)
    store.fail("a", store.create_version("a", SPEC).version, "no")
    build(store, "b", "b1")
    return store


def open_as_left(store: Store) -> None:
    """Nothing more than what every operation starts with."""


def start_version(store: Store) -> None:
    store.create_version("a", SPEC)
    (store.source_dir("a", 4) / "upload.tar.gz").write_text("archive")
    fill(store.staging_dir("a", 4), "a4")


def leave_a_mess(store: Store) -> None:
    """Two builds under way, one of them committed but for its record; an upload; a deletion half done."""
    start_version(store)
    store.create_version("b", SPEC)
    fill(store.staging_dir("b", 2), "b2")
    contents = store._take_in("b", store.staging_dir("b", 2))
    store._disk.write_json(store.staging_dir("b", 2).with_name("contents.json"), contents.to_json())
    store.staging_dir("b", 2).rename(store.staging_dir("b", 2).with_name("artifact"))
    (store.upload_dir() / "upload").write_text("half an archive")
    (store.upload_dir().parent / "trash" / "c-1").mkdir()
    (store.upload_dir().parent / "trash" / "c-1" / "record.json").write_text("{}")
    (store.upload_dir().parent / "models" / "a" / ".new-9").mkdir()
    (store._layout.blobs / ("0" * 64)).write_text("nobody's")


SOURCE = {"kind": "archive", "filename": "model.tar.gz"}


def upload(store: Store) -> None:
    """An archive that has come in whole, and part of another one."""
    (store.upload_dir() / "upload-1").write_text("an archive")
    (store.upload_dir() / "upload-2").write_text("half an arch")


def register(store: Store) -> None:
    store.create_version("a", SPEC, source=SOURCE, archive=store.upload_dir() / "upload-1")


def start_building(store: Store) -> None:
    """A build that has written half of its artifact, and what it needed for it."""
    upload(store)
    register(store)
    (store.source_dir("a", 4) / "unpacked").mkdir()
    (store.source_dir("a", 4) / "unpacked" / "saved_model.pb").write_text("graph")
    fill(store.staging_dir("a", 4), "a4")


def forget_contents(store: Store) -> None:
    """The store as a release before this one left it, as far as version 1 of b goes."""
    store._models["b"].contents.clear()
    for path in (*store._layout.blobs.iterdir(), store.artifact_dir("b", 1).with_name("contents.json")):
        store._disk.remove_file(path)


def _file(store: Store) -> Path:
    return store._layout.root.with_name("a.tar")


def export(store: Store) -> None:
    """A version of another store lies ready, as a file: one for all that are made in a directory."""
    if _file(store).exists():
        return
    root = store._layout.root.with_name("elsewhere")
    with Store.open(root, now=noon) as other:
        version = other.create_version("a", {"labels": {"from": "elsewhere"}}).version
        fill(other.staging_dir("a", version), "elsewhere", manifest=True)
        other.commit("a", version)
    export_version(StoreView(root), "a", 1, _file(store))


def take_in(store: Store) -> None:
    import_version(store, _file(store))


Act = Callable[[Store], object]

#: By name: what comes before, and the act. ``None`` as the act: the store is opened again.
OPERATIONS: dict[str, tuple[Act, Act | None]] = {
    "create a version": (open_as_left, lambda store: store.create_version("a", SPEC)),
    "create a model": (open_as_left, lambda store: store.create_version("new", SPEC)),
    "register an upload": (upload, register),
    "commit what was uploaded": (start_building, lambda store: store.commit("a", 4)),
    "fail what was uploaded": (start_building, lambda store: store.fail("a", 4, "it can't be batched")),
    "commit": (start_version, lambda store: store.commit("a", 4)),
    "fail": (start_version, lambda store: store.fail("a", 4, STOPPED)),
    "activate": (open_as_left, lambda store: store.activate("a", 2)),
    "activate the first": (open_as_left, lambda store: store.activate("b", 1)),
    "move a label": (open_as_left, lambda store: store.set_label("a", "stable", 2)),
    "set the first label": (open_as_left, lambda store: store.set_label("b", "stable", 1)),
    "remove a label": (open_as_left, lambda store: store.remove_label("a", "stable")),
    "take up what an earlier release built": (forget_contents, lambda store: store.record_contents("b", 1)),
    "import": (export, take_in),
    "deactivate": (open_as_left, lambda store: store.deactivate("a")),
    "delete a version": (open_as_left, lambda store: store.delete("a", 2)),
    "delete a model": (open_as_left, lambda store: store.delete("a")),
    "delete what is being built": (start_building, lambda store: store.delete("a", 4)),
    "open after a crash": (leave_a_mess, None),
    "open after a crash while building": (start_building, None),
}


class Countdown:
    """A fault hook that calls ``then`` before step number ``step``, counted from when it is armed."""

    def __init__(self, step: int, then: Callable[[], None]) -> None:
        self._left = step
        self._then = then
        self.armed = False
        self.steps: list[str] = []

    def __call__(self, step: str) -> None:
        if self.armed:
            self.steps.append(step)
            if self._left == 0:
                self._then()
            self._left -= 1


def operate(root: Path, operation: str, disk: Disk, fault: Countdown) -> None:
    """Prepare the store, arm the fault, and do the operation."""
    before, act = OPERATIONS[operation]
    store = prepare(root, disk)
    before(store)
    if act is None:
        store.close()
        fault.armed = True
        Store.open(root, disk=disk, now=noon).close()
    else:
        fault.armed = True
        act(store)
        store.close()


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_each_step(directory: Path, operation: str) -> list[str]:
    """Return the steps. The process must have one thread, for it forks."""
    for step in count():
        root = directory / str(step)
        child = os.fork()
        if child == 0:
            fault = Countdown(step, kill_self)
            # What a killed process wrote is in the kernel: only a power cut needs fsync.
            operate(root, operation, Disk(fault=fault, fsync=lambda _: None), fault)
            (directory / "steps.json").write_text(json.dumps(fault.steps))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            steps: list[str] = json.loads((directory / "steps.json").read_text())
            return steps
        assert os.WIFSIGNALED(status), f"step {step}: {status}"
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError("count() has no end")


if __name__ == "__main__":
    print(json.dumps(kill_at_each_step(Path(sys.argv[1]), sys.argv[2])))

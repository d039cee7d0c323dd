"""A store that lives through many kills: random operations, each ended by SIGKILL before a random step.

``python -m tests.store.rounds DIRECTORY --rounds 200 --seed 1``. What is there after each kill must be what was there
before it, or after one of the acts that the operation consists of: those are done on a copy, uninterrupted. Every file
of every artifact is read and compared each time, and the store goes on from there.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from server.store import Disk, State, Store, StoreView, export_version, import_version
from tests.store.operations import Countdown, fill, kill_self, noon
from tests.store.snapshots import Snapshot, skip, snapshot

Act = Callable[[Store], object]

NAMES = ("a", "b", "c")


def register(name: str, text: str) -> list[Act]:
    def create(store: Store) -> None:
        archive = store.upload_dir() / "upload"
        archive.write_text(text)
        store.create_version(name, {"labels": {"team": text}}, source={"kind": "archive"}, archive=archive)

    def commit(store: Store) -> None:
        version = store.versions(name)[-1].version
        fill(store.staging_dir(name, version), text, manifest=True)
        store.commit(name, version)

    return [create, commit]


def choose(rng: random.Random, view: StoreView, tar: Path) -> tuple[str, list[Act]]:
    """Return an operation that can be done now, as the acts that it consists of."""
    name = rng.choice(NAMES)
    text = f"text {rng.randrange(4)}"
    if name not in view.models():
        return "register", register(name, text)
    records = view.versions(name)
    built = [record.version for record in records if record.state is State.BUILT]
    building = [record.version for record in records if record.state is State.BUILDING]
    free = [
        record.version for record in records if not record.active and record.version not in view.labels(name).values()
    ]
    choices: list[tuple[str, list[Act]]] = [("register", register(name, text)), ("register", register(name, text))]
    if building:
        choices += [("fail", [lambda store: store.fail(name, building[0], "it is enough")])] * 3
    if built:
        version, label = rng.choice(built), rng.choice(("stable", "canary"))
        choices += [
            ("activate", [lambda store: store.activate(name, version)]),
            ("activate", [lambda store: store.activate(name, version)]),
            ("deactivate", [lambda store: store.deactivate(name)]),
            ("label", [lambda store: store.set_label(name, label, version)]),
            ("remove a label", [lambda store: store.remove_label(name, label)]),
        ]
    if free:
        choices.append(("delete a version", [lambda store, version=free[0]: store.delete(name, version)]))
    if rng.random() < 0.2:
        choices.append(("delete a model", [lambda store: store.delete(name)]))
    if tar.exists():
        choices.append(("import", [lambda store: import_version(store, tar, name=name)]))
    with Store.open(view._layout.root, disk=Disk(fsync=skip), now=noon) as store:
        going = store.collectable(name, keep=2)
    if going:
        deletions: list[Act] = [lambda store, version=version: store.delete(name, version) for version in going]
        choices += [("collect", [*deletions, lambda store: store.sweep()])] * 2
    return rng.choice(choices)


def in_child(root: Path, acts: Sequence[Act], fault: Countdown) -> int:
    """Do the acts in a process of their own; return its status."""
    child = os.fork()
    if child == 0:
        try:
            store = Store.open(root, disk=Disk(fault=fault, fsync=skip), now=noon)
            fault.armed = True
            for act in acts:
                act(store)
            fault.armed = False
            store.close()
            os.write(_steps[1], b"%d\n" % len(fault.steps))
        except BaseException as error:  # noqa: BLE001 - told by the exit code
            print(f"{error!r}", flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


_steps = os.pipe()


def expected(root: Path, acts: Sequence[Act], scratch: Path) -> tuple[list[Snapshot], int]:
    """Return what is there before the first act and after each, and the steps of them all."""
    allowed: list[Snapshot] = []
    n_steps = 0
    for done in range(len(acts) + 1):
        copy = scratch / f"{done}"
        # cp keeps the links between files.
        os.system(f"cp -a {root} {copy}")
        assert in_child(copy, acts[:done], Countdown(-1, lambda: None)) == 0
        n_steps = int(os.read(_steps[0], 64))
        allowed.append(snapshot(copy))
    return allowed, n_steps


def rounds(directory: Path, *, n_rounds: int, seed: int) -> Counter[str]:
    """Return how often each operation was ended, and how often it had changed something by then."""
    rng = random.Random(seed)
    root, tar = directory / "store", directory / "a.tar"
    Store.open(root, disk=Disk(fsync=skip), now=noon).close()
    counted: Counter[str] = Counter()
    while sum(counted[key] for key in counted if not key.endswith(": changed")) < n_rounds:
        snapshot(root)
        view = StoreView(root)
        if not tar.exists() and view.models():
            built = [each for each in view.versions(view.models()[0]) if each.state is State.BUILT]
            if built:
                export_version(view, built[0].model, built[0].version, tar)
        operation, acts = choose(rng, view, tar)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            allowed, n_steps = expected(root, acts, Path(scratch))
        if n_steps == 0:
            continue  # it is so already
        step = rng.randrange(n_steps)
        status = in_child(root, acts, Countdown(step, kill_self))
        assert os.WIFSIGNALED(status), (operation, step, n_steps, status)
        assert os.WTERMSIG(status) == signal.SIGKILL
        seen = snapshot(root)
        assert seen in allowed, f"seed {seed}, {operation} ended before step {step} of {n_steps}: something between"
        counted[operation] += 1
        counted[f"{operation}: changed"] += seen != allowed[0]
        # The store goes on from what was meant, so that it does not stand still.
        if rng.random() < 0.7 and seen == allowed[0]:
            assert in_child(root, acts, Countdown(-1, lambda: None)) == 0
            os.read(_steps[0], 64)
    return counted


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    shutil.rmtree(options.directory, ignore_errors=True)
    options.directory.mkdir(parents=True)
    for operation, n in sorted(rounds(options.directory, n_rounds=options.rounds, seed=options.seed).items()):
        print(f"{n:5}  {operation}")

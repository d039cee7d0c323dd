"""What is in the store: is it one, is it sound, does somebody have it open."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rowwise.doctor.finding import Finding, fine, wrong
from server.errors import RowwiseError
from server.store import StoreView
from server.store.layout import Layout

__all__ = ["lock_holder", "store_findings"]

#: A file from tomorrow says that the clock went back.
_AHEAD_S = 3_600.0


def lock_holder(store: Path) -> int | None:
    """Return the process that has a store open, 0 if it does not say which; None: nobody has."""
    try:
        descriptor = os.open(Layout(store).lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).strip()
        return int(holder) if holder.isdigit() else 0
    finally:
        os.close(descriptor)
    return None


def store_findings(store: Path, *, is_served: bool, now_s: float) -> Iterator[Finding]:
    """Yield what is wrong with what is there. ``is_served``: a server is meant to have it open."""
    if not store.exists():
        yield fine("store", f"{store} is not there yet: the server makes it")
        return
    if not store.is_dir():
        return  # told with the disk
    holder = lock_holder(store.absolute())
    if holder is not None and not is_served:
        who = f"process {holder}" if holder else "another process"
        yield wrong(
            "store",
            f"{store} is in use by {who}",
            why="one server at a time has a store: a second one does not start",
            to_do="stop that one, give the other another --store, or ask the one that runs: rowwise doctor --url URL",
        )
    if not any(store.iterdir()):
        yield fine("store", f"{store} is empty: the server makes a store of it")
        return
    try:
        view = StoreView(store)
    except RowwiseError as error:
        yield wrong(
            "store",
            str(error),
            why="the server does not start with it",
            to_do="name another --store, or restore this one; it is not changed by what can't read it",
        )
        return
    for sentence in view.damage:
        yield wrong(
            "store",
            sentence,
            why="that version is not served",
            to_do="rowwise store verify looks at all; register the version again, or import it from where it is sound",
        )
    if not view.damage:
        n_versions = sum(len(view.versions(name)) for name in view.models())
        yield fine("store", f"{store}: {len(view.models())} models, {n_versions} versions")
    yield from _from_the_future(Layout(store.absolute()).format, now_s)


def _from_the_future(file: Path, now_s: float) -> Iterator[Finding]:
    ahead_s = file.stat().st_mtime - now_s
    if ahead_s > _AHEAD_S:
        yield wrong(
            "clock",
            f"the store was made {ahead_s / 3_600:,.0f} hours from now: {time.ctime(file.stat().st_mtime)}",
            why="the clock went back: certificates, tokens' logs and the history of versions go by it",
            to_do="set the clock (timedatectl, chronyc), and let a time service keep it",
        )

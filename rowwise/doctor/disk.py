"""Where the store and temporary files lie: can they be written, and is there space."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from rowwise.doctor.finding import Finding, advice, fine, wrong
from server.settings import Settings

__all__ = ["disk_findings", "free_bytes"]

_GIB = 2**30
#: An artifact of an example model has below 10 MiB, and is built beside the store.
_LEAST_BYTES = _GIB // 4
#: Temporary files of a build's compiler, and the sockets between a server's processes.
_LEAST_TEMPORARY_BYTES = 64 * 2**20


def free_bytes(path: Path) -> int:
    """Return what this user may still write on the file system of a path. Errors: OSError."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def disk_findings(settings: Settings, *, temporary: str, free: Callable[[Path], int] = free_bytes) -> Iterator[Finding]:
    """Yield what is wrong with the store's place, and with that of temporary files. ``temporary`` "": there is none."""
    store = settings.store.absolute()
    place = next(each for each in (store, *store.parents) if each.exists())
    sound = True
    if not place.is_dir():
        sound = False
        yield wrong(
            "store",
            f"the store is to be {store}, and {place} is no directory",
            why="models are kept in it: the server does not start",
            to_do="name another --store, or move the file away",
        )
    elif settings.follow_store:
        sound = False  # another server's, which is read alone
        yield fine("store", f"{place} is another server's, and followed")
    elif reason := _refusal(place):
        sound = False
        can_serve = store.is_dir()
        yield wrong(
            "store",
            f"{place} can't be written: {reason}",
            why="nothing can be registered or switched" if can_serve else "the store can't be made: nothing starts",
            to_do=f"let the server's user write it (chown, or mount it read-write), or name another --store; this is "
            f"user {os.geteuid()}",
        )
    if sound:
        yield from _space("store", place, free, least=_LEAST_BYTES, wanted=settings.max_archive_bytes)
    yield from _temporary(temporary, free)


def _temporary(temporary: str, free: Callable[[Path], int]) -> Iterator[Finding]:
    why = "builds and servers of several processes need it: they fail in ways that do not name it"
    to_do = "set TMPDIR to a directory on a disk with space that this user may write"
    if not temporary:
        yield wrong("temporary", "there is no directory for temporary files that can be written", why=why, to_do=to_do)
        return
    place = Path(temporary)
    if reason := _refusal(place):
        yield wrong("temporary", f"{place} can't be written: {reason}", why=why, to_do=to_do)
    elif free(place) < _LEAST_TEMPORARY_BYTES:
        what = f"{place} has {free(place) / 2**20:.0f} MiB left"
        yield wrong("temporary", what, why=why, to_do="free some space there, or " + to_do)
    else:
        yield fine("temporary", f"{place} has {free(place) / _GIB:.1f} GiB left")


def _space(check: str, place: Path, free: Callable[[Path], int], *, least: int, wanted: int) -> Iterator[Finding]:
    left = free(place)
    what = f"{place} has {left / _GIB:.1f} GiB left"
    if left < least:
        yield wrong(
            check,
            what,
            why="a build that finds no space fails, and so does a switch of versions",
            to_do="free some space, keep fewer versions (--keep-versions, rowwise store gc), or name another --store",
        )
    elif left < wanted:
        yield advice(
            check,
            what,
            why=f"the largest upload that is taken has {wanted / _GIB:.1f} GiB (max_archive_bytes)",
            to_do="lower --max-archive-bytes, or make room",
        )
    else:
        yield fine(check, what)


def _refusal(directory: Path) -> str:
    """Return why nothing can be written there, by trying it with a file that has no name."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""

"""What a jailed process sees of the file system, and in which order it is put together.

A ``View`` says what is needed by the names that are used for it. Those names may lead through symbolic links, which
the process must find as well (``.venv/bin/python`` is one in most checkouts): ``steps`` resolves them, so that each
directory is mounted where it really is, and each link that is not inside of one of them is made again.

The order is that of depth: what lies inside of something comes after it. A store in the directory that the server was
started in is so hidden in it, and the one version that is being built shown in the store.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

__all__ = ["Kind", "Step", "View", "existing", "steps"]

#: As many links as Linux follows in one path.
_MAX_LINKS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Absolute paths. What is in none of them is not there; of what does not exist nothing is made of.

    ``hidden`` is taken out of ``readable`` again; ``writable`` is there whatever lies around it.
    """

    readable: tuple[Path, ...] = ()
    #: Directories that must be listed to find what is readable in them. Nothing else in them is shown.
    listed: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    #: Device nodes besides null, zero, full, random, urandom and tty.
    devices: tuple[Path, ...] = ()


class Kind(IntEnum):
    """What a path becomes. Of two for one path the higher one holds."""

    LINK = 0
    LISTED = 1
    READABLE = 2
    DEVICE = 3
    HIDDEN = 4
    WRITABLE = 5


@dataclass(frozen=True, slots=True)
class Step:
    """One path of a view, without links in it. ``target`` is where a link leads, as it is written in it."""

    path: Path
    kind: Kind
    target: str = ""


def steps(view: View, *, for_another_user: bool = False) -> list[Step]:
    """Return what is to be mounted, parents first; nothing that is there already by what came before.

    ``for_another_user``: directories that only their owner may enter, with something in them that is shown, are made
    anew, which takes nothing from a user that may not enter them.
    Errors: OSError for a path with a circle of links.
    """
    found: dict[Path, Step] = {}
    for kind, paths in (
        (Kind.LISTED, view.listed),
        (Kind.READABLE, view.readable),
        (Kind.DEVICE, view.devices),
        (Kind.HIDDEN, view.hidden),
        (Kind.WRITABLE, view.writable),
    ):
        for path in paths:
            for step in _resolved(path, kind):
                known = found.get(step.path)
                if known is None or known.kind < step.kind:
                    found[step.path] = step
    if for_another_user:
        closed = {each for path in found for each in path.parents if each not in found and not _lets_others_in(each)}
        found |= {path: Step(path, Kind.HIDDEN) for path in closed}
    kept: list[Step] = []
    around: dict[Path, Kind] = {}
    for step in sorted(found.values(), key=lambda step: (len(step.path.parts), step.path)):
        parent = next((around[each] for each in step.path.parents if each in around), None)
        if step.kind in {Kind.LINK, Kind.LISTED} and parent in {Kind.READABLE, Kind.WRITABLE}:
            continue
        if step.kind is parent and step.kind in {Kind.READABLE, Kind.HIDDEN, Kind.WRITABLE}:
            continue
        if step.kind is Kind.HIDDEN and parent is None:
            continue
        kept.append(step)
        if step.kind not in {Kind.LINK, Kind.LISTED}:
            around[step.path] = step.kind
    return kept


def existing(paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Return the paths that exist, made absolute, each once."""
    absolute = (Path(os.path.abspath(path)) for path in paths)  # noqa: PTH100 - links stay in it
    return tuple(dict.fromkeys(path for path in absolute if path.exists()))


def _lets_others_in(directory: Path) -> bool:
    return bool(directory.stat().st_mode & stat.S_IXOTH)


def _resolved(path: Path, kind: Kind) -> list[Step]:
    """Return a step for what ``path`` leads to, and one for each link on the way. None if nothing is there."""
    links: list[Step] = []
    waiting = list(path.parts[1:])
    at = Path("/")
    while waiting:
        name = waiting.pop(0)
        if name == "..":
            at = at.parent
            continue
        here = at / name
        if not here.is_symlink():
            at = here
            continue
        target = os.readlink(here)  # noqa: PTH115 - as it is written
        links.append(Step(here, Kind.LINK, target))
        if len(links) > _MAX_LINKS:
            raise OSError(f"{path} goes through more than {_MAX_LINKS} symbolic links")
        parts = Path(target).parts
        if parts[:1] == ("/",):
            at, parts = Path("/"), parts[1:]
        waiting = [*parts, *waiting]
    return [*links, Step(at, kind)] if at.exists() else []

"""Changes to the disk that are there after a power cut, or not at all.

Rules, and why each is needed:

1. A file is written under another name, fsynced, renamed over the old one, and its directory is fsynced. Without
   the first fsync the new name may come back empty; without the second the rename may not come back.
2. A new directory is made under another name, filled, fsynced from its leaves up, and renamed into place.
3. What is to go away is renamed into the trash first, so that it goes at one moment, and is deleted there.
4. Every step calls ``fault`` with a name before it acts. The server passes a hook that does nothing; tests pass
   one that ends the process there, at each step in turn.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from server.store.errors import StoreDamaged, unwritable

__all__ = ["Disk", "FaultHook", "encode_json", "is_unfinished", "read_json"]

#: Called with the name of the step that comes next. It may end the process or raise; then the step is not taken.
FaultHook = Callable[[str], None]

#: Ends the name of a file or directory that isn't in place yet. A model's or version's name never starts with a dot.
_NEW_PREFIX = ".new-"

#: A damaged state file can be of any size; a real one is far below this.
_MAX_JSON_BYTES = 64 * 2**20


def _no_fault(step: str) -> None:
    """Take the step."""


class Disk:
    """Durable operations, with a fault point before each step.

    ``fsync`` is the system's; tests pass one that records what a power cut would leave.
    Errors: StoreUnwritable for whatever the operating system refuses.
    """

    def __init__(self, *, fault: FaultHook = _no_fault, fsync: Callable[[int], None] = os.fsync) -> None:
        self._fault = fault
        self._fsync = fsync

    def write_json(self, path: Path, value: Mapping[str, Any]) -> None:
        """Replace ``path`` by ``value``, at one moment."""
        new = path.with_name(_NEW_PREFIX + path.name)
        with _refusals(path):
            try:
                self._fault(f"write {path.name}")
                with new.open("w", encoding="utf-8") as file:
                    file.write(encode_json(value))
                    file.flush()
                    self._fault(f"sync {path.name}")
                    self._fsync(file.fileno())
                self._fault(f"replace {path.name}")
                new.replace(path)
            except OSError:
                with suppress(OSError):
                    new.unlink()
                raise
            self._fault(f"sync the directory of {path.name}")
            self._sync(path.parent)

    def make_directory(self, path: Path) -> None:
        """Make ``path`` and what is missing above it. Nothing happens where it exists."""
        if path.is_dir():
            return
        self.make_directory(path.parent)
        with _refusals(path):
            self._fault(f"make {path.name}")
            path.mkdir(exist_ok=True)
            self._fault(f"sync the directory of {path.name}")
            self._sync(path.parent)

    @contextmanager
    def new_directory(self, path: Path) -> Iterator[Path]:
        """Give a directory to fill, which becomes ``path`` when the block ends, and not at all if it raises."""
        new = path.with_name(_NEW_PREFIX + path.name)
        with _refusals(path):
            shutil.rmtree(new, ignore_errors=True)
            self._fault(f"make {path.name}")
            new.mkdir()
            try:
                yield new
                self.sync_tree(new)
                self._fault(f"rename {path.name} into place")
                new.rename(path)
            except Exception:
                shutil.rmtree(new, ignore_errors=True)
                raise
            self._fault(f"sync the directory of {path.name}")
            self._sync(path.parent)

    def move(self, source: Path, target: Path) -> None:
        """Rename, and make it last in both directories: the target's first, so that it is never in neither."""
        with _refusals(target):
            self._fault(f"move {source.name} to {target.name}")
            source.rename(target)
            self._fault(f"sync the directory of {target.name}")
            self._sync(target.parent)
            if source.parent != target.parent:
                self._fault(f"sync the directory that {source.name} left")
                self._sync(source.parent)

    def link(self, path: Path, name: Path) -> None:
        """Give a file that is on the disk another name. ``sync_directory`` makes it last. Errors: OSError."""
        self._fault(f"link {name.name}")
        with suppress(FileExistsError):
            name.hardlink_to(path)

    def replace_by_link(self, path: Path, name: Path) -> None:
        """Let ``name`` be ``path`` under another name, at one moment. Its directory isn't synced. Errors: OSError."""
        new = name.with_name(_NEW_PREFIX + name.name)
        self._fault(f"link {name.name} to a file that is there")
        new.hardlink_to(path)
        self._fault(f"replace {name.name}")
        new.replace(name)
        # Two names of one file: then rename does nothing, and leaves both.
        new.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory last."""
        with _refusals(path):
            self._fault(f"sync the directory {path.name}")
            self._sync(path)

    def remove_file(self, path: Path) -> None:
        """Delete a file, durably. Nothing happens where there is none."""
        with _refusals(path):
            self._fault(f"remove {path.name}")
            path.unlink(missing_ok=True)
            self._fault(f"sync the directory that {path.name} left")
            self._sync(path.parent)

    def discard(self, path: Path) -> None:
        """Delete a file or directory that nobody counts on: what remains of it is removed when the store is opened."""
        self._fault(f"discard {path.name}")
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()

    def sync_file(self, path: Path) -> None:
        """Make a file's contents last."""
        with _refusals(path):
            self._fault(f"sync {path.name}")
            self._sync(path)

    def sync_tree(self, path: Path) -> None:
        """Make a directory and all in it last: files first, then directories from the leaves up.

        Errors: StoreDamaged for a link, pipe or device: the contents of those can't be made to last.
        """
        with _refusals(path):
            self._fault(f"sync the contents of {path.name}")
            for directory, directories, files in os.walk(path, topdown=False):
                for name in (*files, *directories):
                    entry = Path(directory, name)
                    kind = entry.lstat().st_mode
                    if stat.S_ISREG(kind):
                        self._sync(entry)
                    elif not stat.S_ISDIR(kind):
                        raise StoreDamaged(entry, "it is neither a file nor a directory")
                self._sync(Path(directory))

    def _sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._fsync(descriptor)
        finally:
            os.close(descriptor)


def encode_json(value: Mapping[str, Any]) -> str:
    """Return the contents of a state file, for people too. For a file in a ``new_directory``, which lasts with it."""
    return json.dumps(value, indent=1) + "\n"


def is_unfinished(path: Path) -> bool:
    """True for what ``Disk`` had not yet renamed into place when the process ended."""
    return path.name.startswith(_NEW_PREFIX)


def read_json(path: Path) -> dict[str, Any]:
    """Read what ``Disk.write_json`` wrote.

    Errors: FileNotFoundError where there is none; StoreDamaged for anything but a JSON object.
    """
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise StoreDamaged(path, f"it is over {_MAX_JSON_BYTES} bytes")
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise StoreDamaged(path, str(error)) from error
    if not isinstance(value, dict):
        raise StoreDamaged(path, f"it holds a {type(value).__name__} instead of an object")
    return value


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(repr(str(path)), error) from error

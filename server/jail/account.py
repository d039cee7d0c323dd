"""The user that a jailed process is, where the server is root."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Account", "make_plain"]

#: A number of nobody's: people have those up to 60,000, Debian gives out and systemd makes up others. Not ``nobody``,
#: which is a user of its own to file servers, and whom a file system may let write where it is full.
_DEFAULT_ID = 61_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user by its numbers. ``groups`` are those of the accelerators' device nodes."""

    uid: int = _DEFAULT_ID
    gid: int = _DEFAULT_ID
    groups: tuple[int, ...] = ()

    @classmethod
    def named(cls, name: str | None, *, devices: Sequence[Path] = ()) -> Account:
        """Return the user of a name or number; None: one that nobody is.

        Errors: ValueError if there is no such user, or it is root.
        """
        groups = {device.stat().st_gid for device in devices if stat.S_ISCHR(device.stat().st_mode)} - {0}
        if name is None:
            return cls(groups=tuple(sorted(groups)))
        if name.isdigit():
            found = cls(uid=int(name), gid=int(name), groups=tuple(sorted(groups)))
        else:
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                raise ValueError(f"build_user {name!r}: there is no such user; name one, or give a number") from None
            found = cls(uid=entry.pw_uid, gid=entry.pw_gid, groups=tuple(sorted(groups)))
        if found.uid == 0:
            raise ValueError(f"build_user {name!r} is root, which is who builds must not be")
        return found

    def give(self, *tops: Path) -> None:
        """Give directories to this user, with all that is in them."""
        _own(tops, self.uid, self.gid)

    def give_files(self, top: Path, suffix: str) -> None:
        """Give a directory to this user, with the files of one kind that are directly in it."""
        _pass_on(top, suffix, os.getuid(), self.uid, self.gid)

    def take_back_files(self, top: Path, suffix: str) -> None:
        """Undo ``give_files``."""
        _pass_on(top, suffix, self.uid, os.getuid(), os.getgid())

    def take_back(self, *tops: Path) -> None:
        """Give them back to who calls. Nobody else may be writing there any more."""
        _own(tops, os.getuid(), os.getgid())


def make_plain(*tops: Path) -> None:
    """Take from files in directories what would make them programs of their owner's or group's."""
    for top in tops:
        for directory, _, names in os.walk(top):
            for name in names:
                path = os.path.join(directory, name)  # noqa: PTH118 - see _own
                mode = os.lstat(path).st_mode
                if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                    os.chmod(path, stat.S_IMODE(mode) & 0o777)  # noqa: PTH101


def _own(tops: Sequence[Path], uid: int, gid: int) -> None:
    """Links are not followed: what they lead to is somebody else's."""
    for top in tops:
        os.lchown(top, uid, gid)
        # The owner of a directory may empty it; so its entries follow it.
        for directory, directories, names in os.walk(top):
            for name in (*directories, *names):
                os.lchown(os.path.join(directory, name), uid, gid)  # noqa: PTH118 - a tree may have many


def _pass_on(top: Path, suffix: str, owner: int, uid: int, gid: int) -> None:
    """Give what is ``owner``'s to another user: a directory, and files directly in it. Links are not followed."""
    with os.scandir(top) as entries:
        files = [entry.path for entry in entries if entry.name.endswith(suffix)]
    for path in (str(top), *files):
        if os.lstat(path).st_uid == owner:
            os.lchown(path, uid, gid)

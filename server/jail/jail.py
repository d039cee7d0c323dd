"""A jail: how a command is run so that it can do no harm, and what of that holds on this machine.

There are four ways, the best first. Which one is used is found by trying them: ``trial`` is run in each, and the first
that keeps all promises is taken, else the one that breaks the fewest, which ``Jail.broken`` then names.

1. bubblewrap: namespaces of its own for everything, put together by a program that others have looked at.
2. the same namespaces, put together by ``namespaces``.
3. Landlock: no namespaces, which most containers don't give; files, signals and sockets are refused one by one.
4. limits alone.

In each of them ``settle`` comes last and takes away what is left: user, capabilities, system calls.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from server.jail import landlock, namespaces
from server.jail.account import Account
from server.jail.bubblewrap import bubblewrap
from server.jail.limits import JailLimits
from server.jail.system_calls import has_filter
from server.jail.trial import PROMISES
from server.jail.view import View, steps

__all__ = ["Jail", "Means", "find_jail", "n_threads"]

_SETTLE = Path(__file__).with_name("settle.py")
_TRIAL = Path(__file__).with_name("trial.py")
#: One takes below 0.2 s.
_TRIAL_S = 20.0
_MORE_THREADS = 1_000


class Means(StrEnum):
    """How a jail is made."""

    BUBBLEWRAP = "bubblewrap"
    NAMESPACES = "namespaces"
    LANDLOCK = "landlock"
    LIMITS = "limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jail:
    """One way to run a command. ``account``: the user that it runs as; None: the server's own."""

    means: Means
    account: Account | None
    #: Bubblewrap's program, where that is the way.
    program: str = ""
    has_filter: bool = True
    #: Why a promise does not hold, by its name in ``PROMISES``.
    broken: Mapping[str, str] = field(default_factory=dict)

    def command(self, command: Sequence[str], view: View, limits: JailLimits, *, directory: Path) -> list[str]:
        """Return the command that runs ``command`` jailed, in ``directory``.

        Whoever runs it passes environment and descriptors on, and must let others enter the directories that are made
        for mounts: umask 022. The command has 077.
        """
        shown = steps(view, for_another_user=self.account is not None)
        is_root = os.geteuid() == 0
        by_namespaces = self.means is Means.NAMESPACES
        restrictions = {
            "namespaces": namespaces.description(shown, is_root=is_root) if by_namespaces else None,
            "directory": str(directory),
            "limits": self.counted(limits).to_json(),
            "user": None
            if self.account is None
            else {"uid": self.account.uid, "gid": self.account.gid, "groups": list(self.account.groups)},
            "files": landlock.rules(shown) if self.means is Means.LANDLOCK else None,
            "filter": self.has_filter,
            "no_sockets": self.means in {Means.LANDLOCK, Means.LIMITS},
        }
        settled = [sys.executable, "-I", "-S", str(_SETTLE), json.dumps(restrictions), *command]
        if self.means is Means.BUBBLEWRAP:
            return [*bubblewrap(self.program, shown, is_root=is_root), *settled]
        return settled

    def counted(self, limits: JailLimits) -> JailLimits:
        """Return the limits on top of what the user has running already, where that is the server's own."""
        if self.account is not None:
            return limits
        return replace(limits, processes=limits.processes + n_threads(os.getuid()))

    def to_json(self) -> dict[str, Any]:
        """Return what an operator wants to know of it, in plain JSON types."""
        return {
            "means": str(self.means),
            "user": os.geteuid() if self.account is None else self.account.uid,
            "holds": {name: what for name, what in PROMISES.items() if name not in self.broken},
            "missing": dict(self.broken),
        }


def find_jail(
    view: View,
    limits: JailLimits,
    *,
    scratch: Path,
    account: Account,
    needed: Sequence[Path] = (),
    without: Sequence[Means] = (),
) -> Jail:
    """Return the best jail that this machine has for a view. Takes a fraction of a second for each way.

    ``view`` must show the Python that this process runs. ``scratch`` is a directory that is not in it, where builds are
    made as well. ``needed`` are files that must be readable in it: another user may not be let in, as where all was
    installed with a umask of 077. ``without`` leaves out ways, for tests.
    """
    best: Jail | None = None
    # A store that can't be written has nothing built in it; elsewhere it can be tried as well.
    place = scratch if os.access(scratch, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="jail-") as made:
        for candidate in _candidates(account):
            if candidate.means in without:
                continue
            tried = _tried(candidate, view, limits, needed, Path(made))
            if tried is not None and (best is None or len(tried.broken) < len(best.broken)):
                best = tried
            if best is not None and not best.broken:
                break
    return best or Jail(
        means=Means.LIMITS, account=None, has_filter=False, broken=dict.fromkeys(PROMISES, "nothing ran")
    )


def n_threads(uid: int) -> int:
    """Return how many threads a user's processes have."""
    total = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                total += len(os.listdir(process / "task")) if process.stat().st_uid == uid else 0  # noqa: PTH208
    return total


def _candidates(account: Account) -> Iterator[Jail]:
    filters = has_filter()
    users = (account, None) if os.geteuid() == 0 else (None,)
    program = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    for means in Means:
        if (means is Means.BUBBLEWRAP and program is None) or (means is Means.LANDLOCK and not landlock.version()):
            continue
        for user in users:
            yield Jail(means=means, account=user, program=program or "", has_filter=filters)


def _tried(jail: Jail, view: View, limits: JailLimits, needed: Sequence[Path], directory: Path) -> Jail | None:
    """Return the jail with what it breaks; None if nothing can be run in it."""
    own, others = directory / "own", directory / "others"
    for made, mode in ((own, 0o700), (others, 0o777)):
        made.mkdir(exist_ok=True)
        made.chmod(mode)
    secret = others / "secret"
    secret.write_text("to be read by nobody")
    secret.chmod(0o644)
    asked = {
        "secret": str(secret),
        "needed": [str(path) for path in needed],
        "pid": os.getpid(),
        # The user may have more running when it is counted again.
        "limits": {**limits.to_json(), "RLIMIT_NPROC": jail.counted(limits).processes + _MORE_THREADS},
        "network": os.readlink("/proc/self/ns/net"),  # noqa: PTH115
        "processes": os.readlink("/proc/self/ns/pid"),  # noqa: PTH115
    }
    inside = replace(view, writable=(own,))
    if jail.account is not None:
        jail.account.give(own)
    command = [sys.executable, "-I", "-S", str(_TRIAL), json.dumps(asked)]
    try:
        done = subprocess.run(
            jail.command(command, inside, limits, directory=own),
            capture_output=True,
            timeout=_TRIAL_S,
            check=True,
            env={},
            umask=0o022,
            start_new_session=True,
        )
        broken = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    finally:
        if jail.account is not None:
            jail.account.take_back(own)
    return Jail(means=jail.means, account=jail.account, program=jail.program, has_filter=jail.has_filter, broken=broken)

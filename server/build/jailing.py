"""The jail of this server's builds: found once, then put around each of them.

``BuildJail`` knows what the operator wants (``JailPolicy``) and what this machine has; ``around`` gives a build's
directories to the user that builds, says by which command and in which environment it is built, and takes everything
back when all of its processes have ended.
"""

from __future__ import annotations

import logging
import os
import site
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from server.build.errors import JailIncomplete
from server.build.limits import BuildLimits
from server.build.request import BuildRequest
from server.build.source import ImportSource, Source
from server.build.visible import (
    devices,
    installed,
    needed_files,
    operators_code,
    packages_path,
    weights_cache,
)
from server.jail import Account, Jail, JailLimits, Means, View, existing, find_jail, make_plain

__all__ = ["BuildJail", "Confined", "JailPolicy"]

_log = logging.getLogger(__name__)

_READ_AND_ENTER = stat.S_IROTH | stat.S_IXOTH
#: What the example models keep.
_WEIGHTS = ".npz"

#: What may be asked for beyond what may be used: threads have stacks that they never touch, allocators reserve.
_ASKED_FOR = 2
_ASKED_FOR_BYTES = 4 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class JailPolicy:
    """What the operator says of jails."""

    #: "auto": as far as this machine can. "required": whole, or nothing is built. "off": none.
    mode: Literal["auto", "required", "off"] = "auto"
    #: Whom a server that is root builds as: name or number; None: a number that is nobody's.
    user: str | None = None
    #: Files and directories that no builder sees, wherever they lie: the store, settings, keys.
    hidden: tuple[Path, ...] = ()
    #: True: source text that a caller sent is run even where the jail is not whole.
    allows_unjailed_source: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Confined:
    """How one build is run. ``is_wrapped``: what is started is not the worker, but ends as it does."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    is_wrapped: bool = False


class BuildJail:
    """The jail of every build of a server. Its methods take time and are called on threads.

    ``scratch`` is a directory on the store's file system for trials. ``without`` leaves out means, for tests.
    """

    def __init__(
        self,
        policy: JailPolicy,
        *,
        scratch: Path,
        environment: Mapping[str, str],
        limits: BuildLimits | None = None,
        without: Sequence[Means] = (),
    ) -> None:
        self._policy = policy
        self._scratch = scratch
        self._environment = dict(environment)
        self._limits = limits or BuildLimits()
        self._without = tuple(without)
        self._account = Account.named(policy.user, devices=devices())
        self._finding = threading.Lock()
        self._found: Jail | None = None
        self._view = View()

    def change(self, limits: BuildLimits) -> None:
        """Build under other limits from now on."""
        self._limits = limits

    def found(self) -> Jail | None:
        """Return the jail that this machine has, None where it is turned off. The first call finds and logs it."""
        if self._policy.mode == "off":
            return None
        with self._finding:
            if self._found is None:
                self._view = installed(self._environment)
                self._found = find_jail(
                    self._view,
                    _limits(self._limits),
                    scratch=self._scratch,
                    account=self._account,
                    needed=needed_files(),
                    without=self._without,
                )
                _tell(self._found)
            return self._found

    def status(self) -> dict[str, Any]:
        """Return what holds of it, in plain JSON types."""
        jail = self.found()
        return {"mode": self._policy.mode, **({} if jail is None else jail.to_json())}

    def check(self, source: Source) -> None:
        """Errors: JailIncomplete where this machine builds no version from such a source."""
        self._check(self.found(), source)

    @contextmanager
    def around(self, request: BuildRequest, command: Sequence[str]) -> Iterator[Confined]:
        """Give how to build a version. All of its processes must have ended when the block is left.

        Errors: JailIncomplete where a whole jail is needed and this machine has none.
        """
        jail = self.found()
        self._check(jail, request.source)
        if jail is None:
            yield Confined(command=tuple(command), environment=self._environment)
            return
        request.source_dir.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix="tmp-", dir=request.source_dir))
        given = (request.source_dir, request.output_dir)
        is_ours = isinstance(request.source, ImportSource)
        # The operator's own code may go on using its weights, and keep new ones.
        caches = self._cache(jail) if is_ours else ()
        view = self._shown(is_ours=is_ours, writable=(*given, *caches))
        limits = _limits(self._limits)
        directory = Path.cwd() if is_ours and Path.cwd() != Path("/") and _lets_in(jail, Path.cwd()) else own
        if jail.account is not None:
            jail.account.give(*given)
        try:
            yield Confined(
                command=tuple(jail.command(command, view, limits, directory=directory)),
                environment=self._inside(own, is_ours=is_ours),
                is_wrapped=True,
            )
        finally:
            left = existing(given)
            if jail.account is not None:
                jail.account.take_back(*left)
            make_plain(*left)

    def _check(self, jail: Jail | None, source: Source) -> None:
        broken = {"all of it": "it is turned off"} if jail is None else dict(jail.broken)
        if not broken:
            return
        told = ", ".join(f"{name}: {why}" for name, why in broken.items())
        if source.is_callers_code and not self._policy.allows_unjailed_source:
            raise JailIncomplete(
                f"source text is only run in a whole jail, and this server's lacks something ({told}): upload a "
                "SavedModel archive instead; an operator who trusts all who may register can set allow_unjailed_source"
            )
        if self._policy.mode == "required":
            raise JailIncomplete(
                f"nothing is built here without a whole jail (jail = required), and this machine's lacks something "
                f"({told})"
            )

    def _shown(self, *, is_ours: bool, writable: tuple[Path, ...]) -> View:
        view = self._view
        theirs = operators_code(["", *sys.path]) if is_ours else View()
        # What is needed is shown though its name begins with a dot, as that of a virtual environment does.
        needed = {path.resolve() for path in view.readable}
        dotted = [path for path in theirs.hidden if path.resolve() not in needed]
        return View(
            readable=(*view.readable, *theirs.readable),
            listed=view.listed,
            writable=writable,
            hidden=(*dotted, *existing(self._policy.hidden)),
            devices=view.devices,
        )

    def _cache(self, jail: Jail) -> tuple[Path, ...]:
        cache = weights_cache(self._environment)
        try:
            cache.mkdir(parents=True, exist_ok=True)
            if jail.account is not None:
                # What was kept by who started the server, or by a server of before, is there to be read too.
                jail.account.give_files(cache, _WEIGHTS)
            elif os.geteuid() == 0:
                # Without privileges root reads no file of another user's, as those that a better jail's builds kept.
                self._account.take_back_files(cache, _WEIGHTS)
        except OSError as error:
            _log.warning("trained weights can't be kept in %s: %s", cache, error.strerror)
        return existing([cache])

    def _inside(self, own: Path, *, is_ours: bool) -> dict[str, str]:
        environment = {
            **self._environment,
            "HOME": str(own),
            "TMPDIR": str(own),
            "PYTHONPATH": packages_path(self._environment),
        }
        environment.pop("ROWWISE_CACHE", None)
        if site.ENABLE_USER_SITE and site.USER_BASE:
            environment["PYTHONUSERBASE"] = site.USER_BASE
        if is_ours:
            environment["ROWWISE_CACHE"] = str(weights_cache(self._environment))
        else:
            # Nothing is imported from where it happens to be started.
            environment["PYTHONSAFEPATH"] = "1"
        return environment


def _lets_in(jail: Jail, directory: Path) -> bool:
    """Return whether the operator's code there can be read, and say so if it can't."""
    if jail.account is None or directory.stat().st_mode & _READ_AND_ENTER == _READ_AND_ENTER:
        return True
    _log.warning(
        "%s is for its owner only, so that nothing can be imported from it by the user that builds (%d): let others "
        "read it, or run the server as a user of its own",
        directory,
        jail.account.uid,
    )
    return False


def _limits(limits: BuildLimits) -> JailLimits:
    return JailLimits(
        # The wall clock's limit is the server's to keep; this one holds without it.
        cpu_s=limits.build_timeout_s * (os.cpu_count() or 1) + limits.exit_grace_s,
        memory_bytes=_ASKED_FOR * limits.build_memory_bytes + _ASKED_FOR_BYTES,
        file_bytes=limits.build_disk_bytes,
        processes=limits.build_processes * limits.concurrent_builds,
    )


def _tell(jail: Jail) -> None:
    if not jail.broken:
        _log.info("models are built in a jail (%s)", jail.means)
        return
    _log.warning(
        "models are built in a jail (%s) that does not keep all: %s",
        jail.means,
        "; ".join(f"{name}: {why}" for name, why in jail.broken.items()),
    )

"""How builds can be shut in here, found by trying it."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rowwise.doctor.finding import Finding, advice, fine, wrong
from server.build import BuildJail, BuildLimits, JailPolicy, builder_environment
from server.jail import Means
from server.settings import Settings

__all__ = ["ask_jail", "has_bubblewrap", "jail_findings"]


def ask_jail(settings: Settings, *, without: Sequence[Means] = ()) -> dict[str, Any]:
    """Return what GET /v1/status would tell of the jail. Takes up to a second. Errors: OSError; ValueError.

    ``without`` leaves out means, for tests.
    """
    with tempfile.TemporaryDirectory(prefix="rowwise-doctor-") as scratch, _silent():
        jail = BuildJail(
            JailPolicy(mode=settings.jail, user=settings.build_user),
            scratch=Path(scratch),
            environment=builder_environment(),
            limits=BuildLimits(
                build_timeout_s=settings.build_timeout_s,
                build_memory_bytes=settings.build_memory_bytes,
                build_disk_bytes=settings.build_disk_bytes,
                concurrent_builds=settings.concurrent_builds,
            ),
            without=without,
        )
        return jail.status()


def jail_findings(settings: Settings, status: Mapping[str, Any], *, has_bubblewrap: bool) -> Iterator[Finding]:
    """Yield what builds of callers' models could do here."""
    if settings.jail == "off":
        yield advice(
            "jail",
            "builds are not shut in (jail = off)",
            why="whoever may register a model can do what the server's user can",
            to_do="leave --jail as it is (auto), or require a whole one",
        )
        return
    missing: Mapping[str, str] = status["missing"]
    if not missing:
        yield fine("jail", f"builds are shut in wholly, by {status['means']}")
        return
    told = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
    what = f"builds are shut in by {status['means']}, which does not keep all: {told}"
    to_do = _remedy(has_bubblewrap=has_bubblewrap)
    if settings.jail == "required":
        yield wrong("jail", what, why="nothing is built here, as jail = required asks for a whole one", to_do=to_do)
    elif settings.allow_source and not settings.allow_unjailed_source:
        yield wrong(
            "jail",
            what,
            why="source text is refused, though allow_source is set: it is run in a whole jail alone",
            to_do=f"{to_do}; or set --allow-unjailed-source where everybody who may register is trusted",
        )
    else:
        yield advice("jail", what, why="a hostile model's build could do that much", to_do=to_do)


def has_bubblewrap() -> bool:
    """Return whether its program is where it is looked for."""
    return shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin") is not None


def _remedy(*, has_bubblewrap: bool) -> str:
    namespaces = (
        "allow this user namespaces (sysctl kernel.unprivileged_userns_clone=1 and "
        "kernel.apparmor_restrict_unprivileged_userns=0; in a container a seccomp profile with unshare and mount)"
    )
    return namespaces if has_bubblewrap else f"install bubblewrap (apt-get install bubblewrap), or {namespaces}"


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what the server logs of its jail to ourselves: it is told as findings."""
    log = logging.getLogger("server.build.jailing")
    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was

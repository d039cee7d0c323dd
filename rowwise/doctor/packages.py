"""Packages that the settings ask for: extras that were not installed, models that can't be imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from rowwise.doctor.finding import Finding, fine, wrong
from server.settings import Settings

__all__ = ["is_there", "packages_findings"]


def is_there(package: str) -> bool:
    """Return whether a top-level package can be found from where the server is started; nothing is imported."""
    return PathFinder.find_spec(package, [str(Path.cwd()), *sys.path]) is not None


def packages_findings(settings: Settings, *, there: Callable[[str], bool] = is_there) -> Iterator[Finding]:
    """Yield which are missing."""
    extras = []
    if settings.otlp_endpoint is not None:
        extras.append(("otlp_endpoint", "opentelemetry", "tracing"))
    if settings.bucket is not None:
        extras.append(("bucket", "obstore", "s3"))
    missing = [extra for extra in extras if not there(extra[1])]
    for setting, package, extra in missing:
        yield wrong(
            "packages",
            f"{setting} is set, and the package {package} is not installed",
            why="the server does not start",
            to_do=f"{sys.executable} -m pip install 'rowwise[{extra}]'",
        )
    paths = [path.partition("=")[2].partition(":")[0] for path in settings.models]
    wanted = sorted({path.partition(".")[0] for path in (*paths, *settings.import_packages) if path})
    lost = [package for package in wanted if not there(package)]
    for package in lost:
        yield wrong(
            "packages",
            f"the settings name models in {package!r}, which can't be found from {Path.cwd()}",
            why="those models can't be built",
            to_do="install the package, or start the server in the directory that it is in",
        )
    if not missing and not lost:
        yield fine("packages", "all that the settings ask for are installed")

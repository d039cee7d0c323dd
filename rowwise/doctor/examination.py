"""All checks in their order. A check that can't be made is a finding as well."""

from __future__ import annotations

import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rowwise.doctor.certificates import certificate_findings
from rowwise.doctor.cgroup import read_cgroup
from rowwise.doctor.clock import clock_findings
from rowwise.doctor.cores import cores_findings
from rowwise.doctor.descriptors import descriptors_finding
from rowwise.doctor.disk import disk_findings
from rowwise.doctor.finding import Finding, wrong
from rowwise.doctor.jail import ask_jail, has_bubblewrap, jail_findings
from rowwise.doctor.memory import memory_bytes, memory_findings
from rowwise.doctor.packages import packages_findings
from rowwise.doctor.ports import ports_findings
from rowwise.doctor.private_files import private_files_findings
from rowwise.doctor.processes import processes_finding
from rowwise.doctor.processor import instruction_sets, processor_finding
from rowwise.doctor.python import python_finding
from rowwise.doctor.running import ask_server, running_findings
from rowwise.doctor.settings import read_settings
from rowwise.doctor.store import store_findings
from rowwise.doctor.tensorflow import ask_tensorflow, tensorflow_findings
from server.build.visible import devices
from server.jail.jail import n_threads
from server.settings import Settings

__all__ = ["examine"]

_Check = tuple[str, Callable[[], Iterable[Finding]]]


def examine(
    given: Mapping[str, Any],
    *,
    url: str | None = None,
    ca: Path | None = None,
    is_quick: bool = False,
    on_check: Callable[[str], None] = lambda name: None,
) -> Iterator[Finding]:
    """Yield what is found of this machine for a server with these flags, and of one that runs at ``url``.

    ``is_quick`` leaves out what takes seconds: importing TensorFlow, trying the jail. ``on_check`` is told which check
    begins.
    """
    settings, finding = read_settings(given)
    yield finding
    now_s = time.time()
    served: list[_Check] = []
    if url is not None:
        token = None if settings.token is None else settings.token.get_secret_value()
        served = [("server", lambda: running_findings(url, ask_server(url, token, ca=ca), now_s=now_s))]
    checks: list[_Check] = [
        *_machine(is_quick=is_quick),
        *_settings(settings, now_s, is_served=_is_own(settings, url)),
        *served,
    ]
    if not is_quick:
        checks.append(("jail", lambda: jail_findings(settings, ask_jail(settings), has_bubblewrap=has_bubblewrap())))
    for name, check in checks:
        on_check(name)
        try:
            yield from check()
        except Exception as error:  # noqa: BLE001 - what ends one check must not end the others
            yield wrong(
                name,
                f"this could not be checked: {type(error).__name__}: {error}",
                why="what it would have found is not known",
                to_do="mend what the other checks found, and run it again",
            )


def _machine(*, is_quick: bool) -> Iterator[_Check]:
    yield "python", lambda: [python_finding(sys.version_info[:3], sys.executable)]
    yield "processor", lambda: [processor_finding(platform.machine(), instruction_sets(_text("/proc/cpuinfo")))]
    if not is_quick:
        yield "tensorflow", lambda: tensorflow_findings(ask_tensorflow(), n_device_nodes=len(devices()))


def _settings(settings: Settings, now_s: float, *, is_served: bool) -> Iterator[_Check]:
    cgroup = read_cgroup()
    n_cores = len(os.sched_getaffinity(0))
    yield "cores", lambda: cores_findings(settings, n_cores=n_cores, quota_cores=cgroup.cores)
    yield (
        "descriptors",
        lambda: [descriptors_finding(settings, hard=resource.getrlimit(resource.RLIMIT_NOFILE)[1])],
    )
    yield (
        "memory",
        lambda: memory_findings(
            settings,
            total_bytes=memory_bytes(_text("/proc/meminfo")),
            cgroup_bytes=cgroup.memory_bytes,
            address_space_bytes=resource.getrlimit(resource.RLIMIT_AS)[0],
        ),
    )
    yield (
        "processes",
        lambda: [
            processes_finding(
                uid=os.geteuid(),
                limit=resource.getrlimit(resource.RLIMIT_NPROC)[0],
                n_running=n_threads(os.geteuid()),
                n_cores=n_cores,
                cgroup_processes=cgroup.processes,
            )
        ],
    )
    yield "temporary", lambda: disk_findings(settings, temporary=_temporary())
    yield "store", lambda: store_findings(settings.store, is_served=is_served or settings.follow_store, now_s=now_s)
    yield "ports", lambda: ports_findings(settings, is_served=is_served)
    yield "tokens", lambda: private_files_findings(settings)
    yield "tls", lambda: certificate_findings(settings, now_s=now_s)
    yield "packages", lambda: packages_findings(settings)
    yield "clock", lambda: clock_findings(now_s=now_s)


def _is_own(settings: Settings, url: str | None) -> bool:
    """Return whether a URL is that of the server that the settings are for: its port, on this machine."""
    if url is None:
        return False
    parts = urlsplit(url)
    return parts.port == settings.port and parts.hostname in {settings.host, "127.0.0.1", "localhost", "::1"}


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return ""


def _text(path: str) -> str:
    file = Path(path)
    return file.read_text() if file.is_file() else ""

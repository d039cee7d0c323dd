"""What an operator asks of the server as a whole: the facts behind ``GET /v1/status`` and the metrics of states.

What the kernel, the file system or a large store has to be asked for is looked up on a thread, since it can take a
while; what the event loop owns is read on its thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from server.catalog import Catalog
from server.certificate_dates import not_after_s
from server.hosting import Host
from server.processes import ProcessTable, Usage, usage_of
from server.settings import Settings
from server.state_metrics import States

__all__ = ["ServerState", "settings_sha256"]

#: Settings that bound what callers can make the server do.
_LIMITS = (
    "max_body_bytes", "max_receiving_bytes", "max_archive_bytes", "max_instances", "queue_rows", "queue_bytes",
    "server_queue_bytes", "default_timeout_ms", "head_timeout_s", "idle_timeout_s", "write_timeout_s",
    "max_connections", "batch_limit", "grace_s", "build_timeout_s", "build_memory_bytes", "build_disk_bytes",
    "concurrent_builds", "max_versions", "max_model_bytes", "max_store_bytes",
)  # fmt: skip
#: What would let somebody try secrets against the hash of settings.
_SECRET = ("token", "tokens")


class _Tells(Protocol):
    """A part of the server that tells its state."""

    def status(self) -> dict[str, Any]:
        """Return it, as plain JSON types."""


@dataclass(slots=True)
class _Looked:
    """What was found on a thread the last time."""

    table: ProcessTable = field(default_factory=lambda: ProcessTable(pids={}))
    usages: dict[str, Usage] = field(default_factory=dict)
    #: Free bytes and size of the store's file system.
    space: tuple[int, int] | None = None
    certificate_ends_s: float | None = None


class ServerState:
    """Knows the parts. ``settings`` gives those in force, ``n_audit_failures`` the lines that the audit log lacks."""

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        catalog: Catalog,
        host: Host,
        jail: _Tells,
        store: _Tells,
        processes: Callable[[], ProcessTable],
        n_audit_failures: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._host = host
        self._jail = jail
        self._store = store
        self._processes = processes
        self._n_audit_failures = n_audit_failures
        self._looked = _Looked()

    def look(self) -> None:
        """Find out what takes a while. To be called on a thread, before ``states``."""
        settings, looked = self._settings(), _Looked(self._processes())
        for name, pid in looked.table.pids.items():
            if (usage := usage_of(pid)) is not None:
                looked.usages[name] = usage
        try:
            space = os.statvfs(settings.store)
            looked.space = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
            if settings.tls_certificate is not None:
                looked.certificate_ends_s = not_after_s(settings.tls_certificate)
        except (OSError, ValueError):
            pass  # who needs them says so; here they are not known
        self._looked = looked

    def states(self) -> States:
        """Return the values of ``StateMetrics``. On the event loop's thread."""
        looked, catalog = self._looked, self._catalog
        records = catalog.models()
        queue = self._host.queue_bytes()
        return {
            "rowwise_info": [((version("rowwise"), _tensorflow(), platform.python_version()), 1)],
            "rowwise_ready": [((), 0 if catalog.readiness() else 1)],
            "rowwise_versions": [
                (key, n) for key, n in sorted(Counter((one.model, str(one.state)) for one in records).items())
            ],
            "rowwise_active_version": [((one.model,), one.version) for one in records if one.active],
            "rowwise_queue_limit_rows": [
                ((name, str(number)), n_rows) for name, number, n_rows in self._host.queue_limits()
            ],
            "rowwise_queue_bytes": [((), queue[0])],
            "rowwise_queue_limit_bytes": [((), queue[1])],
            "rowwise_store_free_bytes": [] if looked.space is None else [((), looked.space[0])],
            "rowwise_store_size_bytes": [] if looked.space is None else [((), looked.space[1])],
            "rowwise_tls_certificate_expiry_seconds": (
                [] if looked.certificate_ends_s is None else [((), looked.certificate_ends_s)]
            ),
            "rowwise_audit_log_failures": [((), self._n_audit_failures())],
            "rowwise_process_resident_bytes": self._by_process(lambda usage: usage.resident_bytes),
            "rowwise_process_cpu_seconds": self._by_process(lambda usage: usage.cpu_s),
            "rowwise_process_open_descriptors": self._by_process(lambda usage: usage.n_descriptors),
            "rowwise_process_max_descriptors": self._by_process(lambda usage: usage.max_descriptors),
            "rowwise_process_threads": self._by_process(lambda usage: usage.n_threads),
            "rowwise_process_start_time_seconds": self._by_process(lambda usage: usage.started_s),
            "rowwise_process_restarts": [((name,), n) for name, n in looked.table.restarts.items()],
        }

    async def status(self, covers: Callable[[str], bool]) -> dict[str, Any]:
        """Return all of it as plain JSON types; of models those that ``covers`` lets be seen."""
        _, jail, store, devices = await asyncio.gather(
            *_on_threads(self.look, self._jail.status, self._store.status, self._host.devices)
        )
        settings, looked = self._settings(), self._looked
        # The first of them is there as long as the server.
        age_s = max((usage.age_s for usage in looked.usages.values()), default=0.0)
        reasons = self._catalog.readiness()
        return {
            "version": version("rowwise"),
            "tensorflow": _tensorflow(),
            "python": platform.python_version(),
            "uptime_s": round(age_s, 3),
            "ready": not reasons,
            "settings_sha256": settings_sha256(settings),
            "devices": devices,
            "jail": jail,
            "store": store if looked.space is None else {**store, "free_bytes": looked.space[0]},
            "tls_certificate_ends_s": looked.certificate_ends_s,
            "models": dict(self._models(covers)),
            "processes": {
                name: {
                    "pid": pid,
                    "restarts": looked.table.restarts.get(name, 0),
                    **({} if (usage := looked.usages.get(name)) is None else _shown(usage)),
                }
                for name, pid in looked.table.pids.items()
            },
            "limits": {name: getattr(settings, name) for name in _LIMITS},
        }

    def _models(self, covers: Callable[[str], bool]) -> Iterator[tuple[str, dict[str, Any]]]:
        waiting: Counter[str] = Counter()
        for name, _, _, n_rows in self._host.waiting_rows():
            waiting[name] += n_rows
        records = self._catalog.models()
        for name in sorted({one.model for one in records}):
            if covers(name):
                own = [one for one in records if one.model == name]
                yield (
                    name,
                    {
                        "active_version": next((one.version for one in own if one.active), None),
                        "versions": dict(sorted(Counter(str(one.state) for one in own).items())),
                        "labels": dict(self._catalog.labels(name)),
                        "queue_rows": waiting[name],
                    },
                )

    def _by_process(self, of: Callable[[Usage], float]) -> Iterable[tuple[tuple[str, ...], float]]:
        return [((name,), of(usage)) for name, usage in self._looked.usages.items()]


def settings_sha256(settings: Settings) -> str:
    """Return a hash by which servers with the same settings are known; tokens are no part of it."""
    told = settings.model_dump(mode="json", exclude=set(_SECRET))
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _tensorflow() -> str:
    """Return its release, without importing it; its build for processors alone has another name."""
    try:
        return version("tensorflow")
    except PackageNotFoundError:
        return version("tensorflow-cpu")


def _on_threads(*functions: Callable[[], Any]) -> list[Awaitable[Any]]:
    return [asyncio.to_thread(function) for function in functions]


def _shown(usage: Usage) -> dict[str, float]:
    return {
        "resident_bytes": usage.resident_bytes,
        "open_descriptors": usage.n_descriptors,
        "max_descriptors": usage.max_descriptors,
        "threads": usage.n_threads,
        "cpu_s": round(usage.cpu_s, 2),
        "started_s": round(usage.started_s, 2),
    }

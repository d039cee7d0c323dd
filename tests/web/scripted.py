"""Doubles for the web layer's tests: a catalog that does what a test tells it, and a caller without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from server.batching import Draining
from server.build.source import ArchiveSource, Source
from server.errors import RowwiseError
from server.metrics import Metrics
from server.settings import Settings
from server.spec import ModelSpec
from server.store.errors import Conflict, ModelNotFound, ModelNotReady, VersionNotFound
from server.store.index import check_label
from server.store.records import NO_INTAKE, Intake, State, VersionRecord
from server.web import create_app
from server.web.interfaces import Batches
from tests.web.scripted_model import ScriptedModel

LOCAL = ("127.0.0.1", 50_000)
REMOTE = ("203.0.113.7", 50_000)


@dataclass
class ScriptedServing:
    """A version that serves."""

    model: ScriptedModel


class ScriptedCatalog:
    """A catalog in memory. ``builds_end_as`` is what a registration comes to when it is waited for."""

    def __init__(self, upload_dir: Path) -> None:
        self.served: dict[tuple[str, int], ScriptedModel] = {}
        self.records: dict[tuple[str, int], VersionRecord] = {}
        self.registered: list[tuple[str, ModelSpec, Source]] = []
        self.uploads: list[bytes] = []
        #: Names and bytes of what was asked about before it came.
        self.announced: list[tuple[str, int]] = []
        self.builds_end_as = VersionRecord(model="", version=0, state=State.AVAILABLE, active=True)
        self.activated: list[tuple[int, str]] = []
        self.set_labels: dict[str, int] = {}
        self.shares: dict[tuple[str, int], float] = {}
        self.not_ready: list[str] = []
        self.told: list[str] = []
        self.is_draining = False
        self.register_error: RowwiseError | None = None
        self._upload_dir = upload_dir

    def serve(self, model: ScriptedModel, **record: Any) -> ScriptedModel:
        """Add a version that answers, as the active one."""
        for key, known in self.records.items():
            if key[0] == model.name:
                self.records[key] = replace(known, active=False)
        self.served[model.name, model.version] = model
        self.add(model.name, model.version, State.AVAILABLE, active=True, **record)
        return model

    def add(self, name: str, version: int, state: State, **record: Any) -> VersionRecord:
        """Add a version without a model behind it."""
        entry = VersionRecord(model=name, version=version, state=state, **record)
        self.records[name, version] = entry
        return entry

    def resolve(self, name: str, version: int | None = None) -> ScriptedModel:
        if version is None:
            record = next((r for r in self.versions(name) if r.active), None)
            if record is None:
                raise ModelNotReady(name, None, "it is still being built")
        else:
            record = self.version(name, version)
        if (name, record.version) not in self.served:
            raise ModelNotReady(name, record.version, f"it is {record.state}")
        if self.is_draining:
            raise Draining
        return self.served[name, record.version]

    async def check_new(self, name: str, *, n_bytes: int) -> None:
        self.announced.append((name, n_bytes))
        if self.register_error is not None:
            raise self.register_error

    async def register(
        self, name: str, spec: ModelSpec, source: Source, *, intake: Intake = NO_INTAKE
    ) -> VersionRecord:
        if self.register_error is not None:
            raise self.register_error
        self.registered.append((name, spec, source))
        if isinstance(source, ArchiveSource):
            self.uploads.append(source.path.read_bytes())
            source.path.unlink()
        record = self.add(name, 1 + max((v for n, v in self.records if n == name), default=0), State.BUILDING)
        self.records[name, record.version] = replace(record, intake=intake)
        return self.records[name, record.version]

    async def wait(self, name: str, version: int) -> VersionRecord:
        self.records[name, version] = replace(self.builds_end_as, model=name, version=version)
        return self.records[name, version]

    def models(self) -> list[VersionRecord]:
        return [self.records[key] for key in sorted(self.records)]

    def versions(self, name: str) -> list[VersionRecord]:
        found = [record for record in self.models() if record.model == name]
        if not found:
            raise ModelNotFound(name)
        return found

    def version(self, name: str, version: int) -> VersionRecord:
        self.versions(name)
        if (name, version) not in self.records:
            raise VersionNotFound(name, version)
        return self.records[name, version]

    async def activate(self, name: str, version: int, *, by: str = "") -> VersionRecord:
        record = self.version(name, version)
        if record.state is not State.AVAILABLE:
            raise Conflict(f"version {version} of model {name!r} is {record.state}, not built")
        for key in self.records:
            if key[0] == name:
                self.records[key] = replace(self.records[key], active=key[1] == version)
        self.activated.append((version, by))
        return self.records[name, version]

    async def rollback(self, name: str, *, by: str = "") -> VersionRecord:
        if len(self.activated) < 2:
            raise Conflict(f"model {name!r} has nothing to roll back to")
        return await self.activate(name, self.activated[-2][0], by=by)

    def labels(self, name: str) -> dict[str, int]:
        self.versions(name)
        return dict(self.set_labels)

    async def set_label(self, name: str, label: str, version: int) -> VersionRecord:
        record = self.version(name, version)
        self.set_labels[check_label(label)] = version
        return record

    async def remove_label(self, name: str, label: str) -> None:
        self.versions(name)
        self.set_labels.pop(label, None)

    def history(self, name: str) -> list[dict[str, Any]]:
        self.versions(name)
        return [{"version": version, "at": "", "by": by} for version, by in self.activated]

    async def load(self, name: str, *, by: str = "") -> VersionRecord:
        built = [record for record in self.versions(name) if (name, record.version) in self.served]
        if not built:
            raise Conflict(f"no version of model {name!r} is built")
        self.records[name, built[-1].version] = replace(built[-1], state=State.AVAILABLE, active=True)
        return self.records[name, built[-1].version]

    async def unload(self, name: str, *, by: str = "") -> VersionRecord:
        for record in self.versions(name):
            if record.active:
                self.records[name, record.version] = replace(record, state=State.UNLOADED, active=False)
        return self.versions(name)[-1]

    def serving(self) -> list[ScriptedServing]:
        return [ScriptedServing(self.served[key]) for key, record in self.records.items() if record.active]

    async def set_shadow(self, name: str, version: int, share: float) -> dict[str, Any]:
        if self.version(name, version).active:
            raise Conflict(f"version {version} of model {name!r} serves: it can't be its own shadow")
        self.shares[name, version] = share
        return self.shadow(name, version)

    def shadow(self, name: str, version: int) -> dict[str, Any]:
        self.version(name, version)
        return {"version": version, "share": self.shares.get((name, version), 0.0)}

    async def delete(self, name: str, version: int | None) -> None:
        for record in self.versions(name) if version is None else [self.version(name, version)]:
            del self.records[name, record.version]
            self.served.pop((name, record.version), None)

    def certificate(self, name: str, version: int | None) -> bytes:
        return b'{"looped": [], "version": %d}' % self.resolve(name, version).version

    def costs(self, name: str, version: int | None) -> bytes:
        return b'{"modes": [], "version": %d}' % self.resolve(name, version).version

    def notes(self) -> list[str]:
        return self.told

    def readiness(self) -> list[str]:
        return self.not_ready

    def partial_upload_dir(self) -> Path:
        return self._upload_dir / "partial"

    def new_upload_path(self) -> Path:
        return self._upload_dir / f"upload-{len(list(self._upload_dir.iterdir()))}"


class ScriptedBatches:
    """The log of batches: what it is told to tell."""

    def __init__(self) -> None:
        self.latencies: dict[tuple[str, int, str], list[float]] = {}
        self.keeps: list[bool] = []

    def recent(self, *, model: str | None, limit: int, covers: Callable[[str], bool]) -> list[dict[str, Any]]:
        return []

    def keep_waits(self, *, keeps: bool) -> None:
        self.keeps.append(keeps)

    def latencies_s(self, *, since_s: float, most: int) -> dict[tuple[str, int, str], list[float]]:
        return self.latencies


class Service:
    """The web layer over a scripted catalog, and a caller of it."""

    def __init__(self, upload_dir: Path, *, batches: Batches | None = None, **settings: Any) -> None:
        if "token" in settings:
            settings["token"] = SecretStr(settings["token"])
        self.upload_dir = upload_dir
        self.catalog = ScriptedCatalog(upload_dir)
        self.metrics = Metrics(process=False)
        self.app = create_app(self.catalog, Settings(**settings), self.metrics, batches)

    def request(self, method: str, path: str, *, client: tuple[str, int] = LOCAL, **options: Any) -> httpx.Response:
        """Send one request through httpx, without a socket."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, client=client)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                return await http.request(method, path, **options)

        return asyncio.run(send())

    def predict(self, body: Any, path: str = "/v1/models/sum:predict", **options: Any) -> httpx.Response:
        """Send a prediction; ``body`` is JSON, or bytes as they are."""
        if isinstance(body, bytes):
            return self.request("POST", path, content=body, **options)
        return self.request("POST", path, json=body, **options)

    def counted(self, sample: str, **labels: str) -> float:
        """Return a metric's value, summed over the series that have these labels, whatever others they have."""
        return sum(
            found.value
            for family in self.metrics.registry.collect()
            for found in family.samples
            if found.name == sample and labels.items() <= found.labels.items()
        )

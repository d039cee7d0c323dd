"""The composition root: settings in, a running server out. Wires the parts and does nothing else.

The order of starting is that of need. The socket listens first, then the web layer answers (``/v2/health/live``
within a second), then models are loaded; TensorFlow is imported by the first load, on a thread.

``serve`` is the server in one process. Where it is several, ``server.engine_process`` wires the same parts to workers.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from server.after_ready import AfterReady
from server.background import Background
from server.batch_log import BatchLog
from server.batching import Batch, Item, Observers, QueueLimits
from server.build import Builder, BuildJail, BuildLimits, JailPolicy, builder_environment
from server.catalog import Catalog
from server.catalog_options import CatalogOptions
from server.descriptors import connections_allowed, grpc_connections_allowed, raise_limit
from server.errors import RowwiseError
from server.grpc_server import GrpcServer
from server.hosting import Host
from server.http_listening import listen
from server.http_server import HttpServer, new_event_loop, uvicorn_config
from server.leaving import end_at_latest
from server.logs import change_level, log_to_stderr
from server.memory import bound_arenas
from server.metrics import Metrics
from server.model_store import executables_dir, open_store, quotas_of
from server.processes import ProcessTable, table_of_one
from server.reloading import Reloading, keep_looking
from server.rights import Rates
from server.server_state import ServerState
from server.serving_versions import Announce, nobody_to_tell
from server.settings import Settings
from server.statistics import Statistics
from server.store import ModelStore
from server.thread_pools import keep_pools_apart
from server.tls import Tls
from server.web import create_app
from server.web.crowding import with_room
from server.web.front import Front
from server.web.partial_uploads import PartialUploads
from server.web.tracing import Tracing, start_tracing
from server.xla_cache import keep_executables, where_kept

__all__ = ["Service", "serve"]

_log = logging.getLogger("rowwise")

#: Seconds after the grace period in which the process ends by itself, or is ended.
_LEAVE_S = 2.0


def serve(settings: Settings) -> int:
    """Run the server in this process until SIGTERM or SIGINT. Returns the process's exit code.

    Errors are printed as a sentence: a port in use, a store in use or damaged, a setting that makes no sense.
    """
    log_to_stderr(settings.log_level, log_format=settings.log_format)
    bound_arenas()
    try:
        listener = listen(settings.host, settings.port)
        with listener, open_store(settings) as store:
            keep_pools_apart()
            keep_executables(executables_dir(settings, store))
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                return runner.run(_serve(settings, store, listener))
    except (RowwiseError, ValueError) as error:
        print(f"rowwise: {error}", file=sys.stderr)  # noqa: T201 - said before there is anything to log to
        return 1
    except OSError as error:
        print(f"rowwise: {error.strerror or error}", file=sys.stderr)  # noqa: T201
        return 1


async def _serve(settings: Settings, store: ModelStore, listener: socket.socket) -> int:
    tls = Tls.of(settings)
    service = Service.assemble(settings, store, Metrics(), tls=tls)
    front = service.front
    most = _http_connections(settings)
    server = HttpServer(
        uvicorn_config(settings, app=front, http=with_room(front, most=most)),
        grace_s=settings.grace_s,
        tls=None if tls is None else tls.http,
        most=most,
    )

    def begin_drain() -> None:
        service.begin_drain(server.left_s)
        end_at_latest(server.left_s + _LEAVE_S)

    def change(changed: Settings) -> None:
        server.grace_s = changed.grace_s
        service.change(changed)

    server.stop_on_signals(begin_drain)

    def renew() -> None:
        front.gate.renew()
        if tls is not None:
            tls.renew()

    reloading = Reloading(settings, change, renew=renew)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloading.reload)
    keep_looking(front.gate.look)
    address, port = listener.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    _log.info("Rowwise answers on %s://%s:%d (store: %s)", scheme, address, port, settings.bucket or settings.store)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await service.start()
    try:
        await serving
    finally:
        await service.stop(server.left_s)
    return 0


@dataclass(frozen=True, slots=True)
class Service:
    """The parts that answer, wired. Everything is called on the event loop."""

    host: Host
    builder: Builder
    jail: BuildJail
    catalog: Catalog
    front: Front
    uploads: PartialUploads
    background: Background
    tracing: Tracing | None
    #: None: it is turned off.
    grpc: GrpcServer | None

    @classmethod
    def assemble(
        cls,
        settings: Settings,
        store: ModelStore,
        metrics: Metrics,
        *,
        announce: Announce = nobody_to_tell,
        tls: Tls | None = None,
        rates: Rates | None = None,
        processes: Callable[[], ProcessTable] = table_of_one,
    ) -> Service:
        """Wire the parts. ``rates``: limits that other processes share; ``processes``: which they are.

        Errors: ValueError for a setting that makes no sense, or gRPC's port in use.
        """
        options = _catalog_options(settings)
        grpc = GrpcServer(settings, None if tls is None else tls.grpc) if settings.grpc_port else None
        batches = BatchLog()
        statistics = Statistics()
        host = Host(
            limits=_queue_limits(settings),
            observer=Observers(_BatchMetrics(metrics), batches, statistics),
            statistics=statistics,
            engines=settings.engines,
            invariant=settings.invariant,
            after_ready=AfterReady(where_kept()),
            returning_s=_returning_s(settings),
            on_compared=lambda shadow, result, n_rows, n_differing: metrics.shadow_ran(
                shadow.model, shadow.version, result, n_rows, n_differing
            ),
        )
        host.start()
        environment = builder_environment()
        jail = BuildJail(
            _jail_policy(settings), scratch=store.upload_dir(), environment=environment, limits=_build_limits(settings)
        )
        builder = Builder(limits=_build_limits(settings), environment=environment, jail=jail)
        catalog = Catalog(
            store=store,
            builder=builder,
            host=host,
            options=options,
            on_build=lambda _model, result: metrics.build_ended(result),
            announce=announce,
        )

        def look() -> None:
            metrics.compiled.set(host.after_ready.n_compiled)
            metrics.traced_seconds.set(host.after_ready.traced_s())
            for name, version, entry, n_rows in host.waiting_rows():
                metrics.of_version(name, version, entry).queue_depth(n_rows)

        metrics.before_scrape(look)
        tracing = start_tracing(settings)

        metrics.request_seconds.look = statistics.took
        state = ServerState(
            settings=lambda: front.settings,
            catalog=catalog,
            host=host,
            jail=jail,
            store=store,
            processes=processes,
            n_audit_failures=metrics.requests.n_audit_failures,
        )
        metrics.states.look = state.states
        metrics.before_scrape_on_a_thread(state.look)
        uploads = PartialUploads(store.partial_upload_dir(), max_bytes=lambda: front.settings.max_archive_bytes)
        front = create_app(
            catalog, settings, metrics, batches, tracing, state.status, rates, uploads, waiting_rows=host.waiting_rows
        )
        return cls(host, builder, jail, catalog, front, uploads, Background(), tracing, grpc)

    async def start(self) -> None:
        """Begin to load what is to serve."""
        # In this order: TensorFlow's library takes the interpreter for half a second when it is loaded, and by then
        # who asks whether the server lives has had an answer.
        await self.front.prepare()
        if self.grpc is not None:
            await self.grpc.start(self.front, self.catalog)
        await self.catalog.start()
        self.background.start(self.uploads.keep_clear())
        # The log says at start what this machine can't do, whether anything is built or not.
        await asyncio.to_thread(self.jail.found)

    def change(self, settings: Settings) -> None:
        """Go by these settings from now on, as far as they can change while the server runs."""
        change_level(settings.log_level)
        self.front.change(settings)
        self.builder.change(_build_limits(settings))
        self.catalog.change_keeping(quotas_of(settings), keep_versions=settings.keep_versions)
        self.catalog.change_defaults(
            queue_rows=settings.queue_rows, default_timeout_s=settings.default_timeout_ms / 1_000
        )

    def begin_drain(self, grace_s: float) -> None:
        """Say not ready, and admit nothing more; what has come or was admitted is answered, within ``grace_s``."""
        self.front.gathering.read_now()
        self.catalog.begin_drain()
        self.front.begin_drain()
        if self.grpc is not None:
            self.grpc.begin_drain(grace_s)

    async def stop(self, grace_s: float) -> None:
        """Answer what was admitted, for at most ``grace_s``, and stop the threads."""
        await self.background.cancel()
        if self.grpc is not None:
            await self.grpc.stop(grace_s)
        try:
            async with asyncio.timeout(grace_s):
                await self.catalog.drain()
        except TimeoutError:
            # The thread that runs it can't be waited for either.
            _log.warning("stopped while a batch ran that took longer than the grace period")
            return
        await self.host.aclose()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)


def _http_connections(settings: Settings) -> int:
    limit = raise_limit()
    fitting = connections_allowed(limit) - (grpc_connections_allowed(limit) if settings.grpc_port else 0)
    return min(fitting, settings.max_connections or fitting)


def _returning_s(settings: Settings) -> float:
    # An engine behind workers does not see who is back.
    return 0.0 if settings.http_workers else settings.returning_wait_ms * 1e-3


def _queue_limits(settings: Settings) -> QueueLimits:
    return QueueLimits(
        max_rows=settings.queue_rows,
        max_bytes=settings.queue_bytes,
        max_bytes_in_all=settings.server_queue_bytes,
    )


def _build_limits(settings: Settings) -> BuildLimits:
    return BuildLimits(
        build_timeout_s=settings.build_timeout_s,
        build_memory_bytes=settings.build_memory_bytes,
        build_disk_bytes=settings.build_disk_bytes,
        build_niceness=settings.build_niceness,
        concurrent_builds=settings.concurrent_builds,
    )


def _jail_policy(settings: Settings) -> JailPolicy:
    kept_secret = (settings.store, settings.config, settings.tls_key, settings.tokens_file, settings.audit_log)
    return JailPolicy(
        mode=settings.jail,
        user=settings.build_user,
        hidden=tuple(path.absolute() for path in kept_secret if path is not None),
        allows_unjailed_source=settings.allow_unjailed_source,
    )


def _catalog_options(settings: Settings) -> CatalogOptions:
    expected = {}
    packages = list(settings.import_packages)
    for entry in settings.models:
        name, equals, target = entry.partition("=")
        if not equals or ":" not in target:
            raise ValueError(f"--model {entry!r}: expected NAME=MODULE:FUNCTION")
        expected[name] = target
        # Who names a function on the command line allows its package.
        packages.append(target.partition(":")[0].partition(".")[0])
    return CatalogOptions(
        import_packages=tuple(dict.fromkeys(packages)),
        batch_limit=settings.batch_limit,
        invariant=settings.invariant,
        queue_rows=settings.queue_rows,
        default_timeout_s=settings.default_timeout_ms / 1_000,
        keep_versions=settings.keep_versions,
        follow_s=settings.follow_s,
        expected=expected,
    )


class _BatchMetrics:
    """Tells the metrics of each batch. An ``Observer`` of the batching core."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def dispatched(self, batch: Batch) -> None:
        """Nothing is counted before it has run."""

    def finished(self, batch: Batch, _error: BaseException | None) -> None:
        """Count a batch and how long its rows waited."""
        key: Any = batch.group.key
        series = self._metrics.of_version(key.model, key.version, key.entry)
        series.batch(n_rows=batch.n_rows, bucket=batch.bucket, compute_s=batch.finished_s - batch.dispatched_s)

    def dropped(self, item: Item) -> None:
        """Its request is counted by its status code."""

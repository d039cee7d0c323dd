"""The composition root: settings in, a running server out. Wires the parts and does nothing else.

The order of starting is that of need. The socket listens first, then the web layer answers (``/v2/health/live``
within a second), then models are loaded; TensorFlow is imported by the first load, on a thread.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn

from server.batching import Batch, Item, QueueLimits
from server.build import Builder, BuildLimits
from server.catalog import Catalog, CatalogOptions
from server.errors import RowwiseError
from server.hosting import Host
from server.memory import bound_arenas
from server.metrics import Metrics
from server.settings import Settings
from server.store import Store
from server.tensorflow_notices import open_stderr
from server.web import HotLaneProtocol, create_app
from server.xla_cache import keep_executables

__all__ = ["serve"]

_log = logging.getLogger("rowwise")

#: Connections that the kernel holds until they are accepted; a burst of callers must not see a refusal.
_BACKLOG = 2048


def serve(settings: Settings) -> int:
    """Run the server until SIGTERM or SIGINT. Returns the process's exit code.

    Errors are printed as a sentence: a port in use, a store in use or damaged, a setting that makes no sense.
    """
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(message)s", stream=open_stderr()
    )
    bound_arenas()
    try:
        listener = _listen(settings.host, settings.port)
        with listener, Store.open(settings.store) as store:
            keep_executables(settings.store / "xla-cache")
            run = uvicorn.Server(_config(settings)).config.get_loop_factory()
            with asyncio.Runner(loop_factory=run) as runner:
                return runner.run(_serve(settings, store, listener))
    except (RowwiseError, ValueError) as error:
        print(f"rowwise: {error}", file=sys.stderr)  # noqa: T201 - said before there is anything to log to
        return 1
    except OSError as error:
        print(f"rowwise: {error.strerror or error}", file=sys.stderr)  # noqa: T201
        return 1


async def _serve(settings: Settings, store: Store, listener: socket.socket) -> int:
    metrics = Metrics()
    host = Host(limits=QueueLimits(max_rows=settings.queue_rows), observer=_BatchMetrics(metrics))
    host.start()
    catalog = Catalog(
        store=store,
        builder=Builder(
            limits=BuildLimits(
                build_timeout_s=settings.build_timeout_s,
                build_memory_bytes=settings.build_memory_bytes,
                concurrent_builds=settings.concurrent_builds,
            )
        ),
        host=host,
        options=_catalog_options(settings),
        on_build=lambda _model, result: metrics.build_ended(result),
    )

    def count_waiting() -> None:
        for name, version, entry, n_rows in host.waiting_rows():
            metrics.of_version(name, version, entry).queue_depth(n_rows)

    metrics.before_scrape(count_waiting)
    front = create_app(catalog, settings, metrics)
    server = _Server(_config(settings, app=front, http=partial(HotLaneProtocol, front=front)))
    server.stop_on_signals(catalog.begin_drain)
    address, port = listener.getsockname()[:2]
    _log.info("Rowwise answers on http://%s:%d (store: %s)", address, port, settings.store)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    # In this order: TensorFlow's library takes the interpreter for half a second when it is loaded, and by then who
    # asks whether the server lives has had an answer.
    await front.prepare()
    await catalog.start()
    try:
        await serving
    finally:
        try:
            async with asyncio.timeout(settings.grace_s):
                await catalog.drain()
        except TimeoutError:
            _log.warning("stopped with requests unanswered: they took longer than grace_s (%g s)", settings.grace_s)
        await host.aclose()
    return 0


def _catalog_options(settings: Settings) -> CatalogOptions:
    if settings.grpc_port:
        raise ValueError(f"--grpc-port {settings.grpc_port}: gRPC is not offered by this version; leave it out")
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
        queue_rows=settings.queue_rows,
        default_timeout_s=settings.default_timeout_ms / 1_000,
        expected=expected,
    )


def _config(settings: Settings, *, app: Any = None, http: Any = "httptools") -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=http,
        ws="none",
        lifespan="off",
        access_log=settings.access_log,
        log_config=None,
        log_level=settings.log_level,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(settings.grace_s)),
        backlog=_BACKLOG,
    )


def _listen(host: str, port: int) -> socket.socket:
    """Bind before anything else is done, so that a port in use is said at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ValueError(f"can't listen on {host}:{port}: {error.strerror}; choose another --port or --host") from None
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, which ends the process by the signal once it has stopped."""

    def stop_on_signals(self, on_stop: Callable[[], None]) -> None:
        """Stop gently at the first SIGTERM or SIGINT, at once at the second. ``on_stop`` is called at the first."""

        def stop() -> None:
            if self.should_exit:
                self.force_exit = True
            self.should_exit = True
            on_stop()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the handlers as they are."""
        yield


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

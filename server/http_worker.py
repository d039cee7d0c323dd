"""The composition root of an HTTP worker: callers on one side, the engine on the other."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from functools import partial

from server.descriptors import connections_allowed, raise_limit
from server.http_server import HttpServer, new_event_loop, uvicorn_config
from server.link.worker_end import WorkerEnd
from server.logs import change_level, log_to_stderr
from server.reloading import Reloading, keep_looking
from server.request_counts import WorkerMetrics
from server.rights import Rates
from server.settings import Settings
from server.supervise.orders import Orders
from server.supervise.supervision import REFUSED
from server.supervise.told_settings import read_settings
from server.tally import Tally
from server.tls import Tls
from server.web.crowding import with_room
from server.web.tracing import start_tracing
from server.web.worker_app import create_worker_app

__all__ = ["run_worker"]

_log = logging.getLogger("rowwise")


def run_worker(orders: Orders) -> int:
    """Answer callers until SIGTERM, then those who are here already. Returns the exit code."""
    log_to_stderr(orders.settings.log_level, orders.name, log_format=orders.settings.log_format)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_serve(orders))
    except ValueError as error:
        # A file that settings name was right when the server started. The supervisor tries again.
        _log.error("it can't start: %s", error)
        return REFUSED


async def _serve(orders: Orders) -> int:
    assert orders.listener is not None, "a worker has a listening socket"
    settings, runtime = orders.settings, orders.runtime
    link = WorkerEnd(runtime.link, pid=os.getpid())
    tracing = start_tracing(settings)
    front, health = create_worker_app(
        link,
        settings,
        WorkerMetrics(Tally(runtime.tally(orders.name))),
        engine_socket=runtime.http,
        tracing=tracing,
        rates=Rates(runtime.rates),
    )
    tls = Tls.of(settings)
    most = _connections(settings)
    server = HttpServer(
        uvicorn_config(settings, app=front, http=with_room(front, most=most)),
        grace_s=settings.grace_s,
        tls=None if tls is None else tls.http,
        most=most,
    )

    def begin_drain() -> None:
        health.begin_drain()
        front.begin_drain()
        link.catalog.begin_drain()

    server.stop_on_signals(begin_drain)

    def change(changed: Settings) -> None:
        server.grace_s = changed.grace_s
        change_level(changed.log_level)
        front.change(changed)

    def renew() -> None:
        front.gate.renew()
        if tls is not None:
            tls.renew()

    reloading = Reloading(
        settings,
        change,
        read=partial(read_settings, runtime.settings),
        renew=renew,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloading.reload)
    keep_looking(front.gate.look)
    reloading.catch_up(runtime.settings)
    link.start()
    # What has been made lives as long as the process: full collections need not look at it again.
    gc.collect()
    gc.freeze()
    listener = socket.socket(fileno=orders.listener)
    address, port = listener.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    _log.info("Rowwise answers on %s://%s:%d (store: %s)", scheme, address, port, settings.store)
    try:
        await server.serve(sockets=[listener])
    finally:
        link.close()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)
    return 0


def _connections(settings: Settings) -> int:
    fitting = connections_allowed(raise_limit())
    return min(fitting, settings.max_connections or fitting)

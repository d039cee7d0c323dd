"""The composition root of the engine process: everything but callers, who are with the workers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from functools import partial

from server.app import Service
from server.errors import RowwiseError
from server.http_server import HttpServer, new_event_loop, uvicorn_config
from server.link.engine_end import EngineEnd
from server.logs import log_to_stderr
from server.memory import bound_arenas
from server.metrics import Metrics
from server.model_store import executables_dir, open_store
from server.processes import read_table
from server.reloading import Reloading, keep_looking
from server.request_counts import RequestCounts
from server.rights import Rates
from server.settings import Settings
from server.store import ModelStore
from server.supervise.orders import Orders
from server.supervise.supervision import ENGINE, REFUSED
from server.supervise.told_settings import read_settings
from server.tally import Tally
from server.thread_pools import keep_pools_apart
from server.tls import Tls
from server.web.forwarding import FromWorkers
from server.xla_cache import keep_executables

__all__ = ["run_engine"]


def run_engine(orders: Orders) -> int:
    """Serve workers until SIGTERM, then until the last of them has gone. Returns the exit code.

    Errors are printed as a sentence: a store in use or damaged, a setting that makes no sense.
    """
    settings = orders.settings
    log_to_stderr(settings.log_level, ENGINE, log_format=settings.log_format)
    bound_arenas()
    try:
        with open_store(settings) as store:
            keep_pools_apart()
            keep_executables(executables_dir(settings, store))
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                return runner.run(_serve(orders, store))
    except (RowwiseError, ValueError) as error:
        print(f"rowwise: {error}", file=sys.stderr)  # noqa: T201 - the supervisor ends, this is what is left to read
        return REFUSED
    except OSError as error:
        print(f"rowwise: {error.strerror or error}", file=sys.stderr)  # noqa: T201
        return REFUSED
    finally:
        if os.getppid() != orders.supervisor_pid:
            # It was killed, so nobody else clears up.
            shutil.rmtree(orders.runtime.path, ignore_errors=True)


async def _serve(orders: Orders, store: ModelStore) -> int:
    settings, runtime = orders.settings, orders.runtime
    counts = RequestCounts(
        Tally(runtime.tally(ENGINE)),
        others=lambda: [path for path in map(runtime.tally, orders.workers) if path.exists()],
    )
    counts.keep((name, str(record.version)) for name in store.models() for record in store.versions(name))
    metrics = Metrics(requests=counts)

    async def announce() -> None:
        await end.announce()

    tls = Tls.of(settings)
    rates = Rates(runtime.rates)
    service = Service.assemble(
        settings,
        store,
        metrics,
        announce=announce,
        tls=tls,
        rates=rates,
        processes=partial(read_table, runtime.processes),
    )
    end = EngineEnd(
        runtime.link,
        pid=os.getpid(),
        serving=service.catalog.serving,
        on_waited=lambda served, queue_s, n: metrics.of_version(served.name, served.version, served.entry).waited(
            queue_s, n
        ),
    )
    server = HttpServer(
        uvicorn_config(settings, app=FromWorkers(service.front), uds=str(runtime.http)), grace_s=settings.grace_s
    )
    stopping: asyncio.Task[None] | None = None

    async def stop_after_workers() -> None:
        await end.until_alone(settings.grace_s)
        server.should_exit = True

    def stop() -> None:
        nonlocal stopping
        if stopping is not None:
            server.force_exit = server.should_exit = True
            return
        service.catalog.begin_drain()
        if service.grpc is not None:
            service.grpc.begin_drain(settings.grace_s)
        stopping = asyncio.create_task(stop_after_workers())

    def change(changed: Settings) -> None:
        server.grace_s = changed.grace_s
        service.change(changed)

    def renew() -> None:
        service.front.gate.renew()
        if tls is not None:
            tls.renew()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    reloading = Reloading(
        settings,
        change,
        read=partial(read_settings, runtime.settings),
        renew=renew,
    )
    loop.add_signal_handler(signal.SIGHUP, reloading.reload)
    keep_looking(service.front.gate.look)
    reloading.catch_up(runtime.settings)
    await end.start()
    serving = asyncio.create_task(server.serve())
    await service.start()
    try:
        await serving
    finally:
        await service.stop(server.left_s)
        end.close()
    return 0

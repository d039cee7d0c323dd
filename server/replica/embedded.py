"""A whole server without a port of its own: an ASGI application that somebody else listens for.

It starts and stops by ASGI's lifespan: it has started once every active model is warm, so that whoever routes requests
by that sends none to a server that could not answer, and it stops once what was admitted is answered. All of it runs on
the event loop that the lifespan's start runs on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from server.app import Service
from server.logs import change_level
from server.memory import bound_arenas
from server.metrics import Metrics
from server.model_store import executables_dir, open_store
from server.replica.own_directory import OwnDirectory
from server.replica.present import present
from server.settings import Settings
from server.thread_pools import keep_pools_apart
from server.web.bodies import Receive, Send
from server.web.front import Front, Scope, send_reply
from server.web.request_headers import PredictHeaders, RequestIds
from server.web.status import stopped_reply
from server.xla_cache import keep_executables

__all__ = ["EmbeddedServer"]

_log = logging.getLogger("rowwise")

#: Seconds between looks at whether every model is warm.
_LOOK_S = 0.05
#: Settings of a server that has ports and workers of its own.
_FIXED: dict[str, Any] = {"grpc_port": 0, "http_workers": 0}


class EmbeddedServer:
    """An ASGI application. ``given`` are settings by their names, which outrank file and environment.

    Settings are read when it starts, where it starts: until then it is a value that can be sent anywhere. With a store
    in a bucket it takes a directory of its own below ``store``.
    Units: ``ready_timeout_s`` seconds in which every active model must be warm; else it has not started.
    """

    def __init__(self, given: Mapping[str, Any] | None = None, *, ready_timeout_s: float = 300.0) -> None:
        self._given = dict(given or {})
        self._ready_timeout_s = ready_timeout_s
        self._held = ExitStack()
        self._grace_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        #: None before it has started, and once it has stopped.
        self._service: Service | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Be sent as what it was made of."""
        return partial(EmbeddedServer, ready_timeout_s=self._ready_timeout_s), (self._given,)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection, or the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        service = self._service
        if service is None:
            given = PredictHeaders(scope["headers"]).request_id
            await send_reply(send, stopped_reply(), RequestIds().of(given))
            return
        # Who is at the other end is a proxy: nobody is on this machine for that.
        await service.front({**scope, "client": None}, receive, send)

    @property
    def is_here(self) -> bool:
        """True while it answers on the event loop that runs now."""
        return self._service is not None and asyncio.get_running_loop() is self._loop

    @property
    def front(self) -> Front | None:
        """What answers in it, for protocols that answer predictions themselves; None where it does not serve."""
        return None if self._service is None else self._service.front

    @property
    def n_rows(self) -> int:
        """Rows that were admitted and are not answered: they wait, or run."""
        return 0 if self._service is None else self._service.host.n_rows

    async def start(self) -> None:
        """Start, and return when every active model is warm.

        Errors: ValueError for settings, StoreError for the store; TimeoutError with the reasons.
        """
        settings = Settings.read({**self._given, **_FIXED})
        try:
            if settings.bucket is not None:
                directory = OwnDirectory(settings.store)
                self._held.callback(directory.close)
                settings = settings.model_copy(update={"store": directory.path})
            store = await asyncio.to_thread(open_store, settings)
            self._held.callback(store.close)
            change_level(settings.log_level)
            bound_arenas()
            keep_pools_apart()
            keep_executables(executables_dir(settings, store))
            service = Service.assemble(settings, store, Metrics())
            try:
                await service.start()
                await self._until_ready(service)
            except BaseException:
                await service.stop(0.0)
                raise
        except BaseException:
            self._held.close()
            raise
        self._grace_s, self._loop, self._service = settings.grace_s, asyncio.get_running_loop(), service
        present.server = self
        _log.info("an embedded server is ready (store: %s)", settings.bucket or settings.store)

    async def stop(self) -> None:
        """Answer what was admitted, for at most the grace period, and give everything back. Also twice."""
        service, self._service = self._service, None
        if service is None:
            return
        if present.server is self:
            present.server = None
        service.begin_drain(self._grace_s)
        try:
            await service.stop(self._grace_s)
        finally:
            self._held.close()

    def check(self) -> None:
        """Errors: RuntimeError where it does not serve."""
        if self._service is None:
            raise RuntimeError("the embedded server has not started, or has stopped")

    async def _until_ready(self, service: Service) -> None:
        deadline_s = asyncio.get_running_loop().time() + self._ready_timeout_s
        while reasons := service.catalog.readiness():
            if asyncio.get_running_loop().time() > deadline_s:
                raise TimeoutError(f"not ready within {self._ready_timeout_s:g} s: {'; '.join(reasons)}")
            await asyncio.sleep(_LOOK_S)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:  # noqa: BLE001 - the protocol has it said, whatever it was
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

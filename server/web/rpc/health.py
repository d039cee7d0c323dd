"""``grpc.health.v1.Health``: does the server answer, and do its services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress

from server.errors import RowwiseError
from server.web.errors import PathNotFound
from server.web.interfaces import Catalog
from server.web.rpc.call import Call, Method
from server.web.rpc.reading import read_message, write_message

__all__ = ["HealthService"]

#: How often it is looked for who watches. Readiness changes when models do, which takes seconds.
_LOOK_S = 0.25


class HealthService:
    """Health of the server, and of each of ``services``: all of them answer while the server is ready."""

    def __init__(self, catalog: Catalog, services: Collection[str], leaving: asyncio.Event) -> None:
        self._catalog = catalog
        self._services = services
        self._leaving = leaving
        self.methods = {"Check": Method(unary=self._check), "Watch": Method(stream=self._watch)}

    def _status(self, service: str) -> str:
        if service and service not in self._services:
            return "SERVICE_UNKNOWN"
        return "NOT_SERVING" if self._leaving.is_set() or self._catalog.readiness() else "SERVING"

    async def _check(self, _call: Call, body: bytes) -> bytes:
        service = read_message("grpc.health.v1.HealthCheckRequest", body).service
        status = self._status(service)
        if status == "SERVICE_UNKNOWN":
            raise _unknown(service)
        return write_message("grpc.health.v1.HealthCheckResponse", {"status": status})

    async def _watch(self, _call: Call, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        service = read_message("grpc.health.v1.HealthCheckRequest", await anext(requests)).service
        told = ""
        while True:
            status = self._status(service)
            if status != told:
                told = status
                yield write_message("grpc.health.v1.HealthCheckResponse", {"status": status})
            if self._leaving.is_set():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._leaving.wait()


def _unknown(service: str) -> RowwiseError:
    return PathNotFound(f"no service {service[:80]!r} is here")

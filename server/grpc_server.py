"""gRPC beside HTTP: its port is taken at once, the rest is made late, in a thread: its messages take time to load."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING

from server.descriptors import grpc_connections_allowed, raise_limit
from server.http_listening import reserve
from server.settings import Settings
from server.web.front import Front
from server.web.interfaces import Catalog

if TYPE_CHECKING:
    from server.web.rpc.server import RpcServer

__all__ = ["GrpcServer"]

_log = logging.getLogger("rowwise")


class GrpcServer:
    """The gRPC server of a process, from its port to its end."""

    def __init__(self, settings: Settings, tls: ssl.SSLContext | None = None) -> None:
        """Take the port. Errors: ValueError with the reason."""
        self._tls = tls
        #: Holds the port: callers are refused until somebody listens.
        self._listener = reserve(settings.host, settings.grpc_port, option="--grpc-port")
        self._server: RpcServer | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self, front: Front, catalog: Catalog) -> None:
        """Serve."""
        await asyncio.to_thread(_import)
        from server.web.rpc.server import RpcServer

        if self._stopping is not None:
            return
        self._server = RpcServer(front, catalog, connections=grpc_connections_allowed(raise_limit()))
        await self._server.start(self._listener, tls=self._tls)
        host, port = self._listener.getsockname()[:2]
        _log.info("gRPC answers on %s:%d", host, port)

    def begin_drain(self, grace_s: float) -> None:
        """Let nobody in any more, and answer who is in within ``grace_s`` seconds."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace_s))

    async def _stop(self, grace_s: float) -> None:
        if self._server is None:
            self._listener.close()
        else:
            await self._server.stop(grace_s)

    async def stop(self, grace_s: float) -> None:
        """Wait until everybody has left."""
        self.begin_drain(grace_s)
        assert self._stopping is not None
        await self._stopping


def _import() -> None:
    import server.web.rpc.server  # noqa: F401 - what it costs is paid here

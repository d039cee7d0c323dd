"""uvicorn as every process of the server runs it: our loop, our signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from server.http_listening import BACKLOG
from server.settings import Settings

__all__ = ["HttpServer", "new_event_loop", "uvicorn_config"]


def uvicorn_config(
    settings: Settings, *, app: Any = None, http: Any = "httptools", uds: str | None = None
) -> uvicorn.Config:
    """Return uvicorn's configuration. ``uds`` is the path of a Unix socket, in place of a port."""
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
        backlog=BACKLOG,
        uds=uds,
    )


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of the kind that the server runs on."""
    make = uvicorn.Config(None, loop="uvloop", log_config=None).get_loop_factory()  # type: ignore[arg-type]
    assert make is not None, "uvloop has one"
    return make()


class HttpServer(uvicorn.Server):
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

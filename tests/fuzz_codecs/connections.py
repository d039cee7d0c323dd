"""Whole connections as targets: the bytes of a caller of HTTP or gRPC into the protocol that a socket would feed.

Behind it is the web layer with models that are NumPy. However the bytes are cut, the answers must be the same; nothing
may be raised; and when the caller has gone, nothing of it may be held.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from server.http_server import new_event_loop
from server.metrics import Metrics
from server.settings import Settings
from server.web import create_app
from tests.fuzz_codecs.target import Target
from tests.web.scripted import ScriptedCatalog
from tests.web.scripted_model import ScriptedModel

__all__ = ["Connections"]

#: Turns of the loop in which what a request started has come to its end, where nothing waits for bytes.
_TURNS = 6


class _Socket:
    """A transport that keeps what is written and calls back when it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, kernels: socket.socket) -> None:
        self._loop = loop
        #: What is asked whether the caller is still there.
        self._kernels = kernels
        self.protocol: Any = None
        self.written = bytearray()
        self.is_lost = False
        self._is_closing = False
        self._is_reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"peername": ("127.0.0.1", 5_000), "sockname": ("127.0.0.1", 8_000), "socket": self._kernels}
        return known.get(name, default)

    def write(self, data: bytes) -> None:
        assert not self.is_lost
        self.written += data

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self.lose)

    abort = close

    def lose(self) -> None:
        self._is_closing = True
        if not self.is_lost:
            self.is_lost = True
            self.protocol.connection_lost(None)

    def can_write_eof(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def set_write_buffer_limits(self, *_: Any, **__: Any) -> None:
        pass


class Connections(Target):
    """What the two have in common: a loop, the web layer, and two ways to cut the bytes."""

    def start(self) -> None:
        """Make what is asked, at the first input."""
        self._runner = asyncio.Runner(loop_factory=new_event_loop)
        self.loop = self._runner.get_loop()
        self._pair = socket.socketpair()
        self.loop.set_exception_handler(self._note)
        self.raised: list[Any] = []
        self.catalog = ScriptedCatalog(Path(tempfile.mkdtemp()))
        self.catalog.serve(ScriptedModel("sum", 3))
        self.front = create_app(self.catalog, Settings(max_body_bytes=100_000), Metrics(process=False))
        self._run = self.loop.run_until_complete
        self._run(self.front.prepare())

    def _note(self, _: Any, context: dict[str, Any]) -> None:
        self.raised.append(context)

    def connect(self) -> Any:
        """Return a new protocol."""
        raise NotImplementedError

    def is_busy(self) -> bool:
        """True while something goes on that was started."""
        raise NotImplementedError

    def told(self, written: bytes) -> Any:
        """Return what was answered, without what differs each time. Errors: AssertionError where it is no answer."""
        raise NotImplementedError

    def read(self, data: bytes) -> str:
        if not hasattr(self, "_runner"):
            self.start()
        model = self.catalog.served["sum", 3]
        for kept in (model.rows, model.timeouts_s, model.spent_s, model.callers, model.priorities, model.tickets):
            kept.clear()
        told = [self._run(self._feed(data, len(data) or 1))]
        if crc32(data) % 3 == 0:
            told.append(self._run(self._feed(data, 1 + len(data) // 3)))
            assert self.agree(*told), told
        assert self.front.body_budget._n_bytes == 0
        assert not self.raised, self.raised
        return self.outcome(told[0])

    def agree(self, whole: Any, in_pieces: Any) -> bool:
        """True if both are answers to the same bytes."""
        raise NotImplementedError

    def outcome(self, told: Any) -> str:
        """Name what came."""
        raise NotImplementedError

    async def _feed(self, data: bytes, step: int) -> Any:
        protocol, transport = self.connect(), _Socket(self.loop, self._pair[0])
        transport.protocol = protocol
        protocol.connection_made(transport)
        for start in range(0, len(data), step):
            if transport.is_lost:
                break
            protocol.data_received(data[start : start + step])
            n_written = -1
            while n_written != len(transport.written):  # cold requests that wait their turn take some turns each
                n_written = len(transport.written)
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
        written = bytes(transport.written)
        transport.lose()
        for _ in range(100):
            await asyncio.sleep(0)
            if not self.is_busy():
                break
        else:
            raise AssertionError("something goes on though the caller has gone")
        return self.told(written)

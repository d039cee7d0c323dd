"""A small HTTP server that answers as a test tells it to, byte for byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import httptools
import orjson
import pytest

from loadtests.workload import Workload

#: From (path, body) to the pieces that are sent; an empty one closes the connection.
Script = Callable[[str, bytes], list[bytes]]


class ScriptedServer:
    """Serves each connection in a thread, and keeps what it was asked, in order."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[tuple[str, bytes]] = []
        self.n_connections = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.n_connections += 1
                self._open.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = _Request()
            while data := connection.recv(1 << 16):
                request.feed(data)
                if not request.complete:
                    continue
                with self._lock:
                    self.asked.append((request.path, request.body))
                    pieces = self.script(request.path, request.body)
                for piece in pieces:
                    if not piece:
                        return
                    connection.sendall(piece)
                request = _Request()


class _Request:
    def __init__(self) -> None:
        self.path, self.body, self.complete = "", b"", False
        self._parser = httptools.HttpRequestParser(self)
        self.feed = self._parser.feed_data

    def on_url(self, url: bytes) -> None:
        self.path += url.decode()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


def answer(body: bytes, *, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def doubled(body: bytes) -> bytes:
    """The right answer of the model of ``doubling_workload``."""
    return orjson.dumps({"predictions": [2 * value for value in orjson.loads(body)["instances"]]})


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server that doubles numbers; tests give it other scripts."""
    server = ScriptedServer(lambda path, body: [answer(doubled(body))])
    yield server
    server.close()


@pytest.fixture
def doubling_workload() -> Workload:
    numbers = [index + 0.25 for index in range(20)]
    return Workload(
        model="double",
        bodies=tuple(orjson.dumps({"instances": [number]}) for number in numbers),
        answers=tuple(2 * number for number in numbers),
    )

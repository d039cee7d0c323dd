"""Answers everything with the same bytes, as fast as a Python process can: what the driver can do at most.

It reads nothing of what it gets but where a request ends (with one ``recv``: requests that small arrive whole), so
what is measured against it is the driver, the sockets between them, and nearly nothing else. It also gives the time
of a bare HTTP round trip for one caller.
"""

from __future__ import annotations

import select
import socket
from typing import Annotated

import typer

__all__ = ["answer_bytes", "serve"]

_READ_BYTES = 1 << 16


def answer_bytes(body: bytes) -> bytes:
    """Return an HTTP answer like a server's: a few headers and a length."""
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: 00000000\r\n"
    return b"%scontent-length: %d\r\n\r\n%s" % (head.encode(), len(body), body)


def serve(listener: socket.socket, body: bytes) -> None:
    """Answer every request on ``listener`` with ``body``, for ever."""
    answer = answer_bytes(body)
    listener.setblocking(False)
    connections: dict[int, socket.socket] = {}
    with select.epoll() as poll:
        poll.register(listener.fileno(), select.EPOLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == listener.fileno():
                    connection, _address = listener.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    connection.setblocking(False)
                    connections[connection.fileno()] = connection
                    poll.register(connection.fileno(), select.EPOLLIN)
                    continue
                try:
                    if connections[fd].recv(_READ_BYTES):
                        connections[fd].send(answer)
                        continue
                except OSError:
                    pass  # the caller is gone, which closes the connection like a polite goodbye
                poll.unregister(fd)
                connections.pop(fd).close()


def _command(
    port: Annotated[int, typer.Option(help="Port to listen on, on the loopback interface.")],
    body: Annotated[str, typer.Option(help="The body of every answer.")] = '{"predictions":[0.0]}',
) -> None:
    """Answer every request with BODY until stopped."""
    with socket.create_server(("127.0.0.1", port), backlog=1024) as listener:
        serve(listener, body.encode())


if __name__ == "__main__":
    typer.run(_command)

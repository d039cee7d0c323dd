"""A plain prediction, and callers from whom the server has seen it."""

from __future__ import annotations

from tests.web.sockets import Connection, Running, request, total


def head_of(asked: bytes) -> bytes:
    """Return a request's bytes up to its body."""
    return asked[: asked.index(b"\r\n\r\n") + 4]


PLAIN = request(1, 2, 3)
HEAD = head_of(PLAIN)


async def known(server: Running, connection: Connection) -> None:
    """Let the server see what a plain request looks like."""
    connection.send(PLAIN)
    assert total(await connection.answer()) == 6
    assert server.server.config.app.known_heads.find(HEAD) is not None


async def several(server: Running, n: int) -> list[Connection]:
    connections = [await server.connect() for _ in range(n)]
    for connection in connections:
        await known(server, connection)
    return connections

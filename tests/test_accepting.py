"""Connections are let in as they come, many at a turn of the event loop."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from typing import ClassVar, cast

import pytest

from server import accepting
from server.accepting import Accepting, Door
from server.http_server import new_event_loop


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


class Greeting(asyncio.Protocol):
    """Says how many have come."""

    made: ClassVar[list[Greeting]]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.made.append(self)
        self.transport.write(b"%d" % len(self.made))


def run(main: object) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)  # type: ignore[arg-type]


def test_all_who_have_come_are_let_in_at_one_turn(listener: socket.socket) -> None:
    class Guest(Greeting):
        made: ClassVar[list[Greeting]] = []

    async def main() -> None:
        door = Door(Guest)
        door.listen(listener, backlog=100)
        callers = [socket.create_connection(listener.getsockname()) for _ in range(20)]
        turns = 0
        while len(Guest.made) < len(callers):
            await asyncio.sleep(0)
            turns += 1
        # Looking at the socket, beginning a connection, and telling its protocol are a turn each, or two.
        assert turns < 10
        await asyncio.sleep(0.01)
        assert not len(door)
        door.close()
        late = socket.create_connection(listener.getsockname())
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(Guest.made) == len(callers)
        for caller in callers:
            assert caller.recv(10)
            caller.close()
        late.close()
        for guest in Guest.made:
            guest.transport.close()

    run(main())


def test_who_is_gone_before_he_is_let_in_disturbs_nobody(listener: socket.socket) -> None:
    class Guest(Greeting):
        made: ClassVar[list[Greeting]] = []

    async def main() -> None:
        door = Door(Guest)
        gone, stays = (socket.create_connection(listener.getsockname()) for _ in range(2))
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        gone.close()
        door.listen(listener, backlog=100)
        stays.setblocking(False)
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(stays, 10), 5.0)
        await asyncio.sleep(0.01)
        assert not len(door)
        door.close()
        stays.close()

    run(main())


def test_without_descriptors_it_rests_and_goes_on(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "_REST_S", 0.01)

    class Full:
        """A listening socket whose process has no descriptors left for two calls."""

        def __init__(self) -> None:
            self.refusals = 2

        def fileno(self) -> int:
            return listener.fileno()

        def listen(self, backlog: int) -> None:
            listener.listen(backlog)

        def setblocking(self, flag: object) -> None:
            listener.setblocking(bool(flag))

        def accept(self) -> tuple[socket.socket, object]:
            if self.refusals:
                self.refusals -= 1
                raise OSError(errno.EMFILE, "too many open files")
            return listener.accept()

    async def main() -> None:
        arrived: asyncio.Queue[socket.socket] = asyncio.Queue()
        full = Full()
        accepts = Accepting(arrived.put_nowait)
        accepts.listen(full, backlog=10)  # type: ignore[arg-type]
        with socket.create_connection(listener.getsockname()):
            (await asyncio.wait_for(arrived.get(), 5.0)).close()
        assert not full.refusals
        accepts.close()

    run(main())

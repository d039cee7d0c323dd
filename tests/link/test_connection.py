"""Messages on a connection: whole, in the order of sending, however their bytes come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.link.connection import Connection


class Pipe(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def abort(self) -> None:
        self.is_aborted = True


class End:
    """One end, and what it has taken."""

    def __init__(self) -> None:
        self.taken: list[list[bytes]] = []
        #: Where each frame began, modulo eight.
        self.places: set[int] = set()
        self.lost = 0
        self.pipe = Pipe()
        self.connection = Connection(self.take, self.on_lost)
        self.connection.connection_made(self.pipe)

    def take(self, connection: Connection, frames: Sequence[Any]) -> None:
        assert connection is self.connection
        for frame in frames:
            if len(frame):
                self.places.add(np.frombuffer(frame, np.uint8).ctypes.data % 8)
        self.taken.append([bytes(frame) for frame in frames])

    def on_lost(self, connection: Connection) -> None:
        assert connection is self.connection
        self.lost += 1


def sent(messages: Sequence[Sequence[bytes]]) -> bytes:
    """What the messages are on the wire."""
    end = End()
    for frames in messages:
        end.connection.send(frames)
    return end.pipe.written


def cuts(data: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield pieces of these sizes in turn, until all of it has come."""
    start = turn = 0
    while start < len(data):
        stop = start + sizes[turn % len(sizes)]
        yield data[start:stop]
        start, turn = stop, turn + 1


@given(
    st.lists(st.lists(st.binary(max_size=60), min_size=1, max_size=4), min_size=1, max_size=5),
    st.lists(st.integers(1, 90), min_size=1, max_size=6),
)
def test_messages_come_whole_and_in_order_however_their_bytes_come(
    messages: list[list[bytes]], sizes: list[int]
) -> None:
    end = End()
    for piece in cuts(sent(messages), sizes):
        end.connection.data_received(piece)
    assert end.taken == messages
    # Arrays are read where they lie.
    assert end.places <= {0}


def test_what_comes_byte_by_byte_is_taken_when_it_is_whole() -> None:
    data, end = sent([[b"one"], [b"two", b"three"]]), End()
    seen = []
    for place in range(len(data)):
        end.connection.data_received(data[place : place + 1])
        seen.append(len(end.taken))
    assert end.taken == [[b"one"], [b"two", b"three"]]
    assert (seen[-1], seen[-2]) == (2, 1)


def test_a_message_that_can_not_be_taken_leaves_the_next(caplog: pytest.LogCaptureFixture) -> None:
    taken: list[bytes] = []

    def take(_connection: Connection, frames: Sequence[Any]) -> None:
        if not taken:
            taken.append(b"")
            raise KeyError("a bug")
        taken.append(bytes(frames[0]))

    connection = Connection(take, lambda _connection: None)
    connection.connection_made(Pipe())
    connection.data_received(sent([[b"first"], [b"second"]]))
    assert taken == [b"", b"second"]
    assert "could not be taken" in caplog.text


def test_frames_that_are_not_as_long_as_their_message_are_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    data, end = bytearray(sent([[b"12345678"]])), End()
    data[16:24] = (16).to_bytes(8, "little")
    end.connection.data_received(bytes(data))
    assert end.taken == []
    assert "a message of 32 bytes holds frames of 40" in caplog.text


def test_who_closes_is_told_nothing_more_and_sends_nothing_more() -> None:
    end = End()
    connection = end.connection

    def take(_connection: Connection, frames: Sequence[Any]) -> None:
        end.taken.append([bytes(frame) for frame in frames])
        connection.close()

    connection._on_message = take
    connection.data_received(sent([[b"last"], [b"never"]]))
    connection.close()
    connection.send([b"never"])
    connection.connection_lost(None)
    assert (end.taken, end.lost, end.pipe.is_aborted, end.pipe.written) == ([[b"last"]], 0, True, b"")


def test_who_is_left_is_told_once_and_sends_to_nobody() -> None:
    end = End()
    end.connection.connection_lost(ConnectionResetError())
    end.connection.send([b"never"])
    assert (end.lost, end.pipe.written, end.connection.is_open) == (1, b"", False)


def test_tensors_of_megabytes_cross_a_real_socket_both_ways_at_once() -> None:
    async def test() -> None:
        first, second = socket_pair()
        rng = np.random.default_rng(0)
        large = [rng.bytes(5_000_000 + extra) for extra in (0, 3)]
        got: dict[str, list[list[bytes]]] = {"first": [], "second": []}
        loop = asyncio.get_running_loop()
        ends = []
        for name, sock in (("first", first), ("second", second)):

            def take(_connection: Connection, frames: Sequence[Any], name: str = name) -> None:
                got[name].append([bytes(frame) for frame in frames])

            _, end = await loop.create_unix_connection(
                lambda take=take: Connection(take, lambda _end: None),
                sock=sock,
            )
            ends.append(end)
        for end in ends:
            end.send([b"small", *large])
            end.send([b"after"])
        async with asyncio.timeout(20):
            while min(map(len, got.values())) < 2:  # noqa: ASYNC110 - what is waited for is on this loop
                await asyncio.sleep(0.005)
        assert got == {name: [[b"small", *large], [b"after"]] for name in ("first", "second")}
        for end in ends:
            end.close()
        await asyncio.sleep(0)

    def socket_pair() -> tuple[Any, Any]:
        import socket

        pair = socket.socketpair(socket.AF_UNIX)
        for one in pair:
            one.setblocking(False)
        return pair

    asyncio.run(test())

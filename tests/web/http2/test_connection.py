"""HTTP/2 by the frame: what streams get, what is sent back, and who is sent away. Whole, then byte by byte."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from server.web.http2 import connection as module
from server.web.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    PADDED,
    PREFACE,
    ErrorCode,
    Kind,
    Setting,
    frame,
    window_update,
)
from server.web.http2.frames import settings as settings_frame
from server.web.http2.header_blocks import HeaderReader, literal
from server.web.http2.stream import STREAM_WINDOW
from tests.web.http2.other_side import Client


def with_client(test: Callable[[Client], None], *, step: int | None = None) -> None:
    async def run() -> None:
        client = Client(asyncio.get_running_loop(), step=step)
        test(client)
        client.connection.connection_lost(None)

    asyncio.run(run())


@pytest.mark.parametrize("step", [None, 1, 7], ids=["whole", "byte by byte", "in sevens"])
def test_a_stream_gets_its_headers_and_data(step: int | None) -> None:
    def test(client: Client) -> None:
        assert [kind for kind, *_ in client.transport.frames()] == [Kind.SETTINGS, Kind.WINDOW_UPDATE, Kind.SETTINGS]
        client.open(1, te="trailers")
        client.feed(frame(Kind.DATA, 0, 1, b"abc") + frame(Kind.DATA, END_STREAM, 1, b"def"))
        client.open(3, te="trailers")
        first, second = client.handlers
        assert (first.data, first.has_ended, second.data, second.has_ended) == (b"abcdef", True, b"", False)
        assert first.headers == second.headers == {b":method": b"POST", b":path": b"/a/b", b"te": b"trailers"}

    with_client(test, step=step)


def test_padding_and_priority_are_left_out() -> None:
    def test(client: Client) -> None:
        block = b"\x04" + bytes(5) + client.block() + bytes(4)
        client.feed(frame(Kind.HEADERS, END_HEADERS | PADDED | HAS_PRIORITY, 1, block))
        client.feed(frame(Kind.DATA, END_STREAM | PADDED, 1, b"\x02ab\0\0"))
        assert client.handlers[0].data == b"ab"
        client.open(3)
        client.feed(frame(Kind.DATA, PADDED, 3, b"\x09ab"))
        assert client.broken() == ErrorCode.PROTOCOL_ERROR

    with_client(test)


def test_a_block_of_headers_may_come_in_pieces_and_in_nothing_else_between() -> None:
    def test(client: Client) -> None:
        block = client.block(x="y" * 50)
        client.feed(frame(Kind.HEADERS, END_STREAM, 1, block[:5]) + frame(Kind.CONTINUATION, 0, 1, block[5:9]))
        assert client.handlers == []
        client.feed(frame(Kind.CONTINUATION, END_HEADERS, 1, block[9:]))
        assert client.handlers[0].headers[b"x"] == b"y" * 50
        assert client.handlers[0].has_ended
        client.feed(frame(Kind.HEADERS, 0, 3, block[:5]) + frame(Kind.PING, 0, 0, bytes(8)))
        assert client.broken() == ErrorCode.PROTOCOL_ERROR

    with_client(test)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", ErrorCode.PROTOCOL_ERROR),
        (PREFACE + b"\x00\x40\x01" + bytes(6), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + frame(Kind.DATA, 0, 0, b"a"), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(Kind.DATA, 0, 1, b"a"), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(Kind.HEADERS, END_HEADERS, 2, b"\x82"), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(Kind.HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff"), ErrorCode.COMPRESSION_ERROR),
        (PREFACE + frame(Kind.RST_STREAM, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(Kind.SETTINGS, 0, 0, b"abc"), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + frame(Kind.PING, 0, 0, b"abc"), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + frame(Kind.PUSH_PROMISE, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + window_update(0, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (PREFACE + settings_frame({Setting.INITIAL_WINDOW_SIZE: 2**31}), ErrorCode.FLOW_CONTROL_ERROR),
        (PREFACE + frame(Kind.CONTINUATION, 0, 1, b"a"), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(Kind.PING, 0, 0, bytes(8)) * 5_000, ErrorCode.ENHANCE_YOUR_CALM),
        (
            PREFACE + frame(Kind.HEADERS, 0, 1) + frame(Kind.CONTINUATION, 0, 1, bytes(9_000)) * 4,
            ErrorCode.ENHANCE_YOUR_CALM,
        ),
    ],
)
def test_what_breaks_the_protocol_ends_the_connection_with_a_reason(data: bytes, code: ErrorCode) -> None:
    async def run() -> None:
        client = Client(asyncio.get_running_loop())
        client.connection._has_preface = False
        client.transport.frames()
        client.feed(data)
        assert client.broken() == code
        client.connection.connection_lost(None)

    asyncio.run(run())


def test_a_flood_of_streams_that_are_reset_at_once_is_sent_away() -> None:
    def test(client: Client) -> None:
        client.open(1)
        block = client.block()  # all of it is in the table by now
        for number in range(2, 6_000):
            stream_id = 2 * number - 1
            client.feed(
                frame(Kind.HEADERS, END_HEADERS, stream_id, block) + frame(Kind.RST_STREAM, 0, stream_id, bytes(4))
            )
            if client.transport.is_closed:
                break
        assert client.broken() == ErrorCode.ENHANCE_YOUR_CALM
        assert all(handler.is_reset for handler in client.handlers[1:-1])

    with_client(test)


def test_streams_beyond_their_number_are_refused_and_the_others_unharmed() -> None:
    def test(client: Client) -> None:
        for number in range(module._MAX_STREAMS + 1):
            client.open(2 * number + 1)
        client.feed(
            frame(Kind.DATA, END_STREAM, 1, b"a") + frame(Kind.DATA, END_STREAM, 2 * module._MAX_STREAMS + 1, b"a")
        )
        assert (Kind.RST_STREAM, 0, 2 * module._MAX_STREAMS + 1, struct.pack(">I", ErrorCode.REFUSED_STREAM)) in (
            client.transport.frames()
        )
        assert client.handlers[0].has_ended
        assert len(client.handlers) == module._MAX_STREAMS

    with_client(test)


def test_an_answer_goes_no_further_than_the_other_side_has_room() -> None:
    def test(client: Client) -> None:
        client.feed(settings_frame({Setting.INITIAL_WINDOW_SIZE: 10}))
        client.open(1, flags=END_HEADERS | END_STREAM)
        client.transport.frames()
        stream = client.handlers[0].stream
        last = frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, b"last")
        client.connection.send(stream, frame(Kind.HEADERS, END_HEADERS, 1, b"head"), bytes(25), last)
        assert [(kind, len(payload)) for kind, _, _, payload in client.transport.frames()] == [(1, 4), (0, 10)]
        client.feed(window_update(1, 5))
        assert [(kind, len(payload)) for kind, _, _, payload in client.transport.frames()] == [(0, 5)]
        client.feed(settings_frame({Setting.INITIAL_WINDOW_SIZE: 100}))
        assert [(kind, len(payload)) for kind, _, _, payload in client.transport.frames()] == [(4, 0), (0, 10), (1, 4)]
        assert client.connection.streams == {}

    with_client(test)


def test_a_large_answer_is_cut_into_frames_and_waits_while_the_transport_is_full() -> None:
    def test(client: Client) -> None:
        client.feed(settings_frame({Setting.INITIAL_WINDOW_SIZE: 2**20}) + window_update(0, 2**20))
        client.open(1, flags=END_HEADERS | END_STREAM)
        client.transport.frames()
        client.connection.pause_writing()
        client.connection.send(client.handlers[0].stream, b"", bytes(40_000), frame(Kind.HEADERS, END_STREAM, 1))
        assert client.transport.frames() == []
        client.connection.resume_writing()
        assert [len(payload) for kind, _, _, payload in client.transport.frames() if kind == 0] == [
            16_384,
            16_384,
            7_232,
        ]

    with_client(test)


def test_a_stream_sends_no_more_than_it_has_room_for() -> None:
    def test(client: Client) -> None:
        client.open(1)
        client.transport.frames()
        for _ in range(STREAM_WINDOW // 16_384):
            client.feed(frame(Kind.DATA, 0, 1, bytes(16_384)))
        assert not client.transport.is_closed
        client.connection.credit(client.handlers[0].stream, 2**19)
        assert (Kind.WINDOW_UPDATE, 0, 1, struct.pack(">I", 2**19)) in client.transport.frames()
        client.feed(frame(Kind.DATA, 0, 1, bytes(16_384)) * 33)
        assert client.broken() == ErrorCode.FLOW_CONTROL_ERROR

    with_client(test)


def test_an_answer_before_the_end_of_the_request_resets_it_and_what_still_comes_is_ignored() -> None:
    def test(client: Client) -> None:
        client.open(1)
        client.transport.frames()
        client.connection.send(client.handlers[0].stream, b"", None, frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1))
        assert [kind for kind, *_ in client.transport.frames()] == [Kind.HEADERS, Kind.RST_STREAM]
        client.feed(frame(Kind.DATA, END_STREAM, 1, b"late") + frame(Kind.PING, 0, 0, bytes(8)))
        assert client.transport.frames() == [(Kind.PING, ACK, 0, bytes(8))]

    with_client(test)


def test_leaving_answers_who_is_here_refuses_others_and_closes() -> None:
    def test(client: Client) -> None:
        client.open(1, flags=END_HEADERS | END_STREAM)
        client.transport.frames()
        client.connection.leave()
        client.open(3, flags=END_HEADERS | END_STREAM)
        assert [kind for kind, *_ in client.transport.frames()] == [Kind.GOAWAY, Kind.RST_STREAM]
        assert not client.transport.is_closed
        client.connection.send(client.handlers[0].stream, b"", None, frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1))
        assert client.transport.is_closed
        assert len(client.handlers) == 1

    with_client(test)


def test_a_connection_that_is_lost_resets_every_stream() -> None:
    async def run() -> None:
        client = Client(asyncio.get_running_loop())
        client.open(1)
        client.open(3)
        client.connection.connection_lost(None)
        assert all(handler.is_reset for handler in client.handlers)
        assert client.closed == [client.connection]

    asyncio.run(run())


def test_blocks_are_remembered_only_while_they_mean_the_same() -> None:
    reader, encoder = HeaderReader(max_bytes=10_000), Encoder()
    first = encoder.encode([("a", "1"), ("b", "2")])
    assert reader.read(first) == {b"a": b"1", b"b": b"2"}
    again = encoder.encode([("a", "1"), ("b", "2")])
    assert reader.read(again) == reader.read(again) == {b"a": b"1", b"b": b"2"}
    reader.read(encoder.encode([("c", "3")]))
    # The same two indexes are those of others now.
    assert reader.read(again) == {b"b": b"2", b"c": b"3"}


def test_a_block_that_changes_the_table_and_leaves_it_as_long_is_noticed() -> None:
    reader, encoder = HeaderReader(max_bytes=10_000), Encoder()
    encoder.header_table_size = 40  # one header has room
    for number in range(200):
        block = encoder.encode([("a", f"{number}"), ("b", f"{number}")])
        assert reader.read(block) == {b"a": b"%d" % number, b"b": b"%d" % number}
        again = encoder.encode([("b", f"{number}")])
        assert reader.read(again) == {b"b": b"%d" % number}


@given(st.binary(min_size=1, max_size=60), st.integers(0, 300))
def test_literals_are_read_as_they_were_written(name: bytes, size: int) -> None:
    assert HeaderReader(max_bytes=10_000).read(literal(name, b"v" * size)) == {name: b"v" * size}


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 255), st.integers(0, 7), st.binary(max_size=40)), max_size=12)
)
@settings(max_examples=60, deadline=None)
def test_whatever_frames_come_no_error_leaves(frames: list[tuple[int, int, int, bytes]]) -> None:
    def test(client: Client) -> None:
        for kind, flags, stream_id, payload in frames:
            client.feed(frame(kind, flags, stream_id, payload))

    with_client(test)


FLOODS: dict[str, bytes] = {
    "settings": settings_frame({}),
    "many settings in one frame": settings_frame({Setting.INITIAL_WINDOW_SIZE: 1}) * 1
    + frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", Setting.INITIAL_WINDOW_SIZE, 1) * 1_000),
    "pings": frame(Kind.PING, 0, 0, bytes(8)),
    "answers to pings": frame(Kind.PING, ACK, 0, bytes(8)),
    "priorities": frame(Kind.PRIORITY, 0, 1, bytes(5)),
    "kinds that nobody knows": frame(99, 0, 0, b""),
    "data without bytes": frame(Kind.DATA, 0, 1, b""),
    "data of padding alone": frame(Kind.DATA, PADDED, 1, b"\x03abc"),
    "windows of the connection": frame(Kind.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)),
    "windows of a stream": frame(Kind.WINDOW_UPDATE, 0, 1, struct.pack(">I", 1)),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_of_frames_that_carry_nothing_is_sent_away_and_answered_no_further(flood: bytes) -> None:
    def test(client: Client) -> None:
        client.open(1)
        for _ in range(100):
            client.feed(flood * 50)
            if client.transport.is_closed:
                break
        # Half a megabyte of answers at most, whatever comes.
        assert len(client.transport.written) < 2**19
        assert client.broken() == ErrorCode.ENHANCE_YOUR_CALM

    with_client(test)


def test_a_flood_of_headers_of_streams_that_are_over_or_refused_is_sent_away() -> None:
    def test(client: Client) -> None:
        client.open(1)
        block = client.block()
        client.feed(frame(Kind.RST_STREAM, 0, 1, bytes(4)))
        client.feed(frame(Kind.HEADERS, END_HEADERS, 1, block) * 5_000)
        assert client.broken() == ErrorCode.ENHANCE_YOUR_CALM

    with_client(test)


@pytest.mark.parametrize("size", [0, 1, 100])
def test_headers_that_never_end_are_sent_away_before_they_fill_memory(size: int) -> None:
    def test(client: Client) -> None:
        client.feed(frame(Kind.HEADERS, 0, 1, client.block()))
        client.feed(frame(Kind.CONTINUATION, 0, 1, bytes(size)) * 5_000)
        assert client.broken() == ErrorCode.ENHANCE_YOUR_CALM
        assert client.handlers == []

    with_client(test)


def test_a_small_block_that_unpacks_to_many_headers_ends_the_connection() -> None:
    def test(client: Client) -> None:
        client.encoder.encode([("x", "a" * 4_000)])
        # One byte for each: index 62 is what was put into the table last.
        first = client.encoder.encode([("x", "a" * 4_000)])
        assert len(first) == 1
        fresh = Client(asyncio.get_running_loop())
        bomb = fresh.encoder.encode([("x", "a" * 4_000)]) + first * 10_000
        fresh.feed(frame(Kind.HEADERS, END_HEADERS, 1, bomb))
        assert fresh.broken() == ErrorCode.COMPRESSION_ERROR
        assert fresh.handlers == []
        fresh.connection.connection_lost(None)

    with_client(test)


def test_windows_for_what_is_sent_are_not_counted_as_a_flood() -> None:
    def test(client: Client) -> None:
        client.open(1)
        stream = client.handlers[0].stream
        client.connection.send(stream, b"", bytes(6_000 * 16_384), b"")
        for _ in range(6_000):
            client.feed(frame(Kind.WINDOW_UPDATE, 0, 0, struct.pack(">I", 16_384)))
            client.feed(frame(Kind.WINDOW_UPDATE, 0, 1, struct.pack(">I", 16_384)))
            client.transport.written.clear()
        assert not client.transport.is_closed
        assert not stream.pending

    with_client(test)


@pytest.mark.parametrize("how", ["no window", "full transport"])
def test_a_caller_who_takes_nothing_of_an_answer_is_cut_off_and_one_who_takes_some_is_not(how: str) -> None:
    def test(client: Client) -> None:
        connection = client.connection
        connection._write_timeout_s = 0.0
        client.open(1)
        if how == "full transport":
            connection.pause_writing()
        connection.send(client.handlers[0].stream, b"", bytes(200_000), b"")
        connection._tick()  # some was taken since the last time, or it is only seen now
        if how == "no window":
            client.feed(frame(Kind.WINDOW_UPDATE, 0, 0, struct.pack(">I", 100)))
            client.feed(frame(Kind.WINDOW_UPDATE, 0, 1, struct.pack(">I", 100)))
            connection._tick()
            assert not client.transport.is_closed
        connection._tick()
        assert client.transport.is_closed

    with_client(test)

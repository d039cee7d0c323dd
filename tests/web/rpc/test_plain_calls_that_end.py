"""Plain calls of one tick whose caller goes, whose time is over, or which come in parts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from server.web.http2.frames import END_HEADERS, END_STREAM, Kind, Setting, frame, window_update
from server.web.http2.frames import settings as settings_frame
from server.web.rpc.framing import message
from server.web.rpc.plain_call import PlainCall
from tests.web.rpc.plain_calls import INFER, Together, call_block, held, settled, together, totals
from tests.web.rpc.serving import infer_request


@pytest.mark.parametrize(("timeout", "counted"), [({}, "499"), ({"grpc_timeout": "10S"}, "504")])
def test_who_cancels_is_taken_back_and_the_others_are_answered(
    tmp_path: Path, timeout: dict[str, str], counted: str
) -> None:
    async def test(many: Together) -> None:
        many.model.holds = True
        stream_id = many.ask(*[infer_request([k, 2, 3]) for k in range(4)], **timeout)
        await settled()
        assert len(many.model.held) == 4
        many.clients[1].connection.streams[stream_id].handler._begun_s -= 10  # type: ignore[attr-defined]
        many.clients[1].feed(frame(Kind.RST_STREAM, 0, stream_id, bytes(4)))
        assert [ticket.cancelled for ticket in many.model.tickets] == [False, True, False, False]
        for number in range(4):
            held(many, number)
        answers = await many.answers()
        assert totals([answers[0], *answers[2:]]) == [40, 42, 43]
        assert answers[1] == (b"", {})
        assert many.codes() == {"200": 3.0, counted: 1.0}

    together(test, tmp_path)


def test_who_cancels_in_the_same_tick_is_not_run(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        stream_id = many.ask(*[infer_request([k, 2, 3]) for k in range(4)])
        for client in many.clients[:2]:
            client.feed(frame(Kind.RST_STREAM, 0, stream_id, bytes(4)))
        many.clients[3].connection.connection_lost(None)
        answers = await many.answers()
        assert totals([answers[2]]) == [7]
        assert [each[0] for each in answers[:2]] == [b"", b""]
        assert len(many.model.rows) == 1
        assert many.codes() == {"200": 1.0, "499": 3.0}

    together(test, tmp_path)


def test_deadlines_are_those_of_each(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        for timeout in ("2S", "500m", "3S"):
            many.ask(*[infer_request([k, 2, 3]) for k in range(4)], grpc_timeout=timeout)
        await many.answers()
        assert sorted(many.model.timeouts_s) == [0.5] * 4 + [2.0] * 4 + [3.0] * 4
        assert max(many.model.spent_s) < 0.5
        many.model.timeouts_s.clear()
        many.ask(infer_request([1, 2, 3]), clients=many.clients[:1], grpc_timeout="1999999u")
        many.ask(infer_request([1, 2, 3]), clients=many.clients[1:2], grpc_timeout="2S")
        await many.answers()
        # So near to each other that they are one, the earlier.
        assert many.model.timeouts_s == pytest.approx([1.999999] * 2, abs=1e-9)

    together(test, tmp_path)


def test_calls_whose_deadline_has_passed_are_not_read(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        many.ask(*[infer_request([1, 2, 3])] * 4, grpc_timeout="1n")
        assert {headers["grpc-status"] for _, headers in await many.answers()} == {"4"}
        assert (many.model.rows, many.codes()) == ([], {"504": 4.0})

    together(test, tmp_path)


def test_a_deadline_counts_from_the_headers(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        block = call_block(INFER, {"grpc-timeout": "10S"})
        for client in many.clients:
            client.feed(frame(Kind.HEADERS, END_HEADERS, 1, block))
        await asyncio.sleep(0.15)
        for client in many.clients:
            client.feed(frame(Kind.DATA, END_STREAM, 1, message(infer_request([1, 2, 3]).SerializeToString())))
        assert totals(await many.answers()) == [6] * 4
        assert min(many.model.spent_s) > 0.1

    together(test, tmp_path)


def test_calls_under_way_are_answered_before_a_connection_that_leaves_is_closed(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        many.model.holds = True
        many.ask(*[infer_request([k, 2, 3]) for k in range(4)])
        await settled()
        for client in many.clients:
            client.connection.leave()
        late = many.ask(*[infer_request([1, 2, 3])] * 4)
        assert not any(client.transport.is_closed for client in many.clients)
        for number in range(4):
            held(many, number)
        await settled()
        for client in many.clients:
            kinds = [(kind, stream) for kind, _, stream, _ in client.transport.frames()]
            assert (Kind.GOAWAY, 0) in kinds
            assert (Kind.RST_STREAM, late) in kinds
            assert (Kind.DATA, 1) in kinds
            assert client.transport.is_closed
        assert many.codes() == {"200": 4.0}

    together(test, tmp_path)


def test_an_answer_waits_for_room_in_its_window(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        for client in many.clients[:2]:
            client.feed(settings_frame({Setting.INITIAL_WINDOW_SIZE: 10}))
        many.ask(*[infer_request([k, 2, 3]) for k in range(4)])
        await settled()
        parts = [dict.fromkeys([kind for kind, *_ in client.transport.frames()]) for client in many.clients[:2]]
        assert all(Kind.DATA in part for part in parts)
        assert [bool(client.connection.streams) for client in many.clients] == [True, True, False, False]
        many.clients[0].feed(window_update(1, 1_000))
        many.clients[1].feed(frame(Kind.RST_STREAM, 0, 1, bytes(4)))
        await settled()
        assert not any(client.connection.streams for client in many.clients)
        (answer,) = many.clients[0].answers()
        assert answer["grpc-status"] == "0"
        assert many.codes() == {"200": 4.0}, "it was answered before it was reset"

    together(test, tmp_path)


@pytest.mark.parametrize("where", [1, 5, 30])
def test_a_message_in_two_frames_is_read_as_ever(tmp_path: Path, where: int) -> None:
    async def test(many: Together) -> None:
        data = message(infer_request([1, 2, 3]).SerializeToString())
        block = call_block(INFER)
        for client in many.clients:
            client.feed(frame(Kind.HEADERS, END_HEADERS, 1, block) + frame(Kind.DATA, 0, 1, data[:where]))
        for client in many.clients:
            client.feed(frame(Kind.DATA, END_STREAM, 1, data[where:]))
        assert totals(await many.answers()) == [6] * 4

    together(test, tmp_path)


def test_a_message_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        (client,) = many.clients
        client.feed(frame(Kind.HEADERS, END_HEADERS, 1, call_block(INFER, {"grpc-timeout": "1m"})))
        (stream,) = client.connection.streams.values()
        assert isinstance(stream.handler, PlainCall)
        await asyncio.sleep(0.05)
        stream.handler.tick()
        (answer,) = client.answers()
        assert (answer["grpc-status"], "was not complete" in answer["grpc-message"]) == ("4", True)

    together(test, tmp_path, n=1)


def test_a_limit_that_is_smaller_than_a_frame_holds(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        many.ask(*[infer_request(*[[k, 2, 3]] * 5) for k in range(4)])
        for _, headers in await many.answers():
            assert (headers["grpc-status"], "max_body_bytes" in headers["grpc-message"]) == ("8", True)

    together(test, tmp_path, max_body_bytes=80)

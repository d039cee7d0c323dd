"""The driver against a server that does right, and against every way of doing wrong."""

from __future__ import annotations

import itertools
from typing import Any

import orjson
import pytest

from loadtests.driver import Measurement, drive, percentile, send_each_once
from loadtests.driver_process import DriverProcess
from loadtests.workload import Workload

Server = Any  # ScriptedServer of conftest.py


def answer(body: bytes, *, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def doubled(body: bytes) -> bytes:
    return orjson.dumps({"predictions": [2 * value for value in orjson.loads(body)["instances"]]})


def short(server: Server, workload: Workload, **options: Any) -> Measurement:
    return drive(server.url, workload, **{"callers": 4, "warmup_s": 0.02, "duration_s": 0.15, **options})


@pytest.mark.parametrize("callers", [1, 3, 40])
def test_right_answers_are_counted_and_nothing_fails(server: Server, doubling_workload: Workload, callers: int) -> None:
    measured = short(server, doubling_workload, callers=callers)
    assert measured.failures == {}
    assert measured.first_failure is None
    assert measured.n_answers > callers
    assert measured.requests_per_s == pytest.approx(measured.n_answers / measured.duration_s)
    assert 0 < measured.p50_us <= measured.p90_us <= measured.p99_us <= measured.max_us
    assert 0 < measured.busy <= 1
    assert server.n_connections == callers, "connections are kept"
    assert len(server.asked) >= measured.n_answers


def test_requests_are_sent_in_turn(server: Server, doubling_workload: Workload) -> None:
    short(server, doubling_workload, callers=1)
    bodies = [body for _, body in server.asked]
    turns = itertools.cycle(doubling_workload.bodies)
    assert bodies == [next(turns) for _ in bodies]
    assert {path for path, _ in server.asked} == {"/v1/models/double:predict"}


def test_each_is_sent_once_and_comes_back_in_order(server: Server, doubling_workload: Workload) -> None:
    measured, bodies = send_each_once(server.url, doubling_workload, callers=7)
    assert sorted(body for _, body in server.asked) == sorted(doubling_workload.bodies)
    assert bodies == [doubled(body) for body in doubling_workload.bodies]
    assert measured.n_answers == len(bodies)
    assert measured.failures == {}


def test_more_callers_than_requests_send_each_once_all_the_same(server: Server, doubling_workload: Workload) -> None:
    _, bodies = send_each_once(server.url, doubling_workload, callers=50)
    assert len(server.asked) == len(bodies) == 20
    assert all(bodies)


def test_answers_in_single_bytes_and_in_chunks_are_right(server: Server, doubling_workload: Workload) -> None:
    def in_bytes(path: str, body: bytes) -> list[bytes]:
        whole = answer(doubled(body))
        return [whole[index : index + 1] for index in range(len(whole))]

    def in_chunks(path: str, body: bytes) -> list[bytes]:
        text = doubled(body)
        return [
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            b"%x\r\n%s\r\n" % (len(text), text),
            b"0\r\n\r\n",
        ]

    for script in (in_bytes, in_chunks):
        server.script = script
        measured, bodies = send_each_once(server.url, doubling_workload, callers=3)
        assert measured.failures == {}
        assert bodies == [doubled(body) for body in doubling_workload.bodies]


def test_one_wrong_answer_among_many_right_ones_is_found(server: Server, doubling_workload: Workload) -> None:
    counter = itertools.count()

    def script(path: str, body: bytes) -> list[bytes]:
        return [answer(doubled(body) if next(counter) != 33 else b'{"predictions":[1.0]}')]

    server.script = script
    measured = short(server, doubling_workload, callers=1)
    assert measured.failures == {"wrong answer": 1}
    assert measured.first_failure is not None
    assert measured.first_failure.startswith("wrong answer: request 13: ")


def test_answers_that_were_swapped_between_callers_are_found(server: Server, doubling_workload: Workload) -> None:
    last = [b'{"instances":[0.25]}']

    def script(path: str, body: bytes) -> list[bytes]:
        previous, last[0] = last[0], body
        return [answer(doubled(previous))]

    server.script = script
    measured, _ = send_each_once(server.url, doubling_workload, callers=2)
    assert measured.failures["wrong answer"] >= 19


def test_answers_that_differ_within_the_tolerance_are_right_each_time(
    server: Server, doubling_workload: Workload
) -> None:
    noise = itertools.cycle([0.0, 1e-6, -1e-6])

    def script(path: str, body: bytes) -> list[bytes]:
        (value,) = orjson.loads(body)["instances"]
        return [answer(orjson.dumps({"predictions": [2 * value + next(noise)]}))]

    server.script = script
    assert short(server, doubling_workload).failures == {}


def test_refusals_are_counted_by_status_and_shown(server: Server, doubling_workload: Workload) -> None:
    statuses = itertools.cycle(["429 Too Many Requests", "503 Service Unavailable"])
    server.script = lambda path, body: [answer(b'{"error":"later"}', status=next(statuses))]
    measured, _ = send_each_once(server.url, doubling_workload, callers=2)
    assert measured.failures == {"status 429": 10, "status 503": 10}
    assert measured.first_failure == 'status 429: {"error":"later"}'


def test_closed_connections_are_counted_and_replaced(server: Server, doubling_workload: Workload) -> None:
    counter = itertools.count()

    def script(path: str, body: bytes) -> list[bytes]:
        return [b""] if next(counter) % 5 == 4 else [answer(doubled(body))]

    server.script = script
    measured, bodies = send_each_once(server.url, doubling_workload, callers=2)
    assert measured.failures == {"no answer": 4}
    assert sum(not body for body in bodies) == 4
    assert len(server.asked) == 20
    assert server.n_connections in (5, 6)


def test_bytes_that_are_no_http_are_counted(server: Server, doubling_workload: Workload) -> None:
    server.script = lambda path, body: [b"220 mail.example.com ESMTP\r\n\r\n"]
    measured, _ = send_each_once(server.url, doubling_workload, callers=2)
    assert measured.failures == {"no answer": 20}
    assert measured.first_failure is not None
    assert "no HTTP answer" in measured.first_failure


def test_a_server_that_falls_silent_is_an_error(server: Server, doubling_workload: Workload) -> None:
    server.script = lambda path, body: []
    with pytest.raises(TimeoutError, match=r"4 requests got no answer within 0\.2 s"):
        short(server, doubling_workload, patience_s=0.2)


def test_requests_larger_than_a_socket_takes_at_once_are_sent_whole(server: Server) -> None:
    big = [float(index) for index in range(400_000)]
    workload = Workload(model="double", bodies=(orjson.dumps({"instances": [1.5], "more": big}),), answers=(3.0,))
    measured, _ = send_each_once(server.url, workload, callers=1)
    assert measured.failures == {}
    assert server.asked[0][1] == workload.bodies[0]


def test_nobody_to_connect_to_is_an_error(server: Server, doubling_workload: Workload) -> None:
    server.close()
    with pytest.raises(ConnectionRefusedError):
        short(server, doubling_workload)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "https://127.0.0.1", "http://"])
def test_a_url_that_is_none_is_refused(doubling_workload: Workload, url: str) -> None:
    with pytest.raises(ValueError, match="expected a URL such as http://"):
        drive(url, doubling_workload, callers=1)


def test_the_driver_in_a_process_of_its_own_measures_the_same_things(
    server: Server, doubling_workload: Workload, tmp_path: Any
) -> None:
    file = tmp_path / "double.json"
    file.write_bytes(doubling_workload.to_json())
    with DriverProcess() as driver:
        measured = driver.drive(server.url, file, callers=3, warmup_s=0.02, duration_s=0.1)
        once, bodies = driver.send_each_once(server.url, file, callers=3)
        server.close()
        with pytest.raises(OSError, match="refused"):
            driver.drive(server.url, file, callers=1)
    assert measured.failures == once.failures == {}
    assert measured.callers == 3
    assert bodies == [doubled(body) for body in doubling_workload.bodies]


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.01, 1.0), (0.5, 50.0), (0.505, 51.0), (0.99, 99.0), (1.0, 100.0)]
)
def test_a_percentile_is_the_smallest_value_that_covers_its_share(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(1, 101)], share) == expected


def test_percentiles_of_one_and_of_no_value() -> None:
    assert percentile([3.0], 0.99) == 3.0
    assert percentile([], 0.5) == 0.0

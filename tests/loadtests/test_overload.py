"""The open loop against a server that answers, refuses, is wrong or hangs up."""

from __future__ import annotations

from typing import Any

import pytest

from loadtests.overload import Overload, overload
from loadtests.workload import Workload
from tests.loadtests.test_driver import answer, doubled

Server = Any  # ScriptedServer of conftest.py


def short(server: Server, workload: Workload, **options: Any) -> Overload:
    return overload(
        server.url, workload, **{"rate": 200.0, "duration_s": 0.3, "timeout_s": 5.0, "connections": 20, **options}
    )


def test_requests_are_sent_at_their_rate_and_right_answers_are_goodput(
    server: Server, doubling_workload: Workload
) -> None:
    seen = short(server, doubling_workload)
    assert seen.statuses == {"200": seen.n_sent}
    assert 20 <= seen.n_sent <= 140
    assert seen.goodput == pytest.approx(seen.n_sent / 0.3)
    assert (seen.late, seen.wrong, seen.unanswered, seen.unsent) == (0, 0, 0, 0)


def test_refused_requests_are_tried_again_as_often_as_asked(server: Server, doubling_workload: Workload) -> None:
    server.script = lambda path, body: [answer(b"{}", status="429 Too Many Requests")]
    seen = short(server, doubling_workload, rate=20.0, duration_s=0.8, n_retries=1)
    assert seen.statuses == {"429": seen.n_sent}
    assert seen.goodput == 0
    assert len({body for _, body in server.asked}) < seen.n_sent
    assert seen.refused_p99_ms > 0


def test_wrong_answers_and_closed_connections_are_no_goodput(server: Server, doubling_workload: Workload) -> None:
    def script(path: str, body: bytes) -> list[bytes]:
        return [b""] if b".25" in body and b"1.25" in body else [answer(doubled(b'{"instances": [0]}'))]

    server.script = script
    seen = short(server, doubling_workload)
    assert seen.wrong > 0
    assert seen.unanswered > 0
    assert seen.goodput == 0

"""The second opinion, where wrk is installed."""

from __future__ import annotations

from typing import Any

import pytest

from loadtests import wrk
from loadtests.workload import Workload

pytestmark = pytest.mark.skipif(not wrk.available(), reason="wrk is not installed")


def test_wrk_sends_the_same_requests_in_turn(server: Any, doubling_workload: Workload) -> None:
    assert wrk.requests_per_s(server.url, doubling_workload, callers=1, duration_s=1) > 20
    bodies = [body for _, body in server.asked]
    # wrk asks for one request before it starts, to see whether the script answers.
    start = doubling_workload.bodies.index(bodies[0])
    expected = [doubling_workload.bodies[(start + index) % 20] for index in range(len(bodies))]
    assert bodies == expected
    assert {path for path, _ in server.asked} == {doubling_workload.path}


def test_errors_that_wrk_saw_are_raised(server: Any, doubling_workload: Workload) -> None:
    server.script = lambda path, body: [b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno"]
    with pytest.raises(RuntimeError, match="Non-2xx"):
        wrk.requests_per_s(server.url, doubling_workload, callers=1, duration_s=1)

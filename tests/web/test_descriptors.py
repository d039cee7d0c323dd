"""Callers who take every file descriptor: the server neither ends nor spins, and answers when they have gone."""

from __future__ import annotations

import http.client
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from server.descriptors import connections_allowed, raise_limit
from tests.web.sockets import request

ROOT = Path(__file__).parents[2]


def answer(port: int, *, timeout_s: float = 10.0) -> int:
    """Ask once; return the status, 0 if there was no answer in time."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as caller:
        try:
            caller.sendall(request(1, 2, 3))
            reply = http.client.HTTPResponse(caller)
            reply.begin()
            reply.read()
        except (OSError, http.client.HTTPException):
            return 0
        return reply.status


@pytest.mark.parametrize("bound", ["bounded", "unbounded"])
def test_a_server_without_descriptors_goes_on_and_recovers(bound: str) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.web.crowded_server", "96", bound], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    callers: list[socket.socket] = []
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        assert answer(port) == 200
        callers += [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(150)]
        time.sleep(0.3)
        # Callers who are idle make room; without a bound nobody is even accepted until somebody leaves.
        assert {answer(port, timeout_s=0.5) for _ in range(3)} == ({200} if bound == "bounded" else {0})
        server.stdout.readline()
        busy = [float(server.stdout.readline()) for _ in range(3)]
        assert min(busy) < 0.5, busy
        for caller in callers:
            caller.close()
        deadline_s = time.monotonic() + 10
        while answer(port) != 200 and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert answer(port) == 200
        assert server.poll() is None
    finally:
        for caller in callers:
            caller.close()
        server.terminate()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()


def test_most_descriptors_are_for_callers_and_some_are_not() -> None:
    assert connections_allowed(1_024) == 896
    assert connections_allowed(64) == 16
    assert 0 < 100_000 - connections_allowed(100_000) <= 12_500


def test_the_limit_is_raised_as_far_as_it_may_be() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
        assert raise_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

"""What h2load prints is read, and what is no report is refused."""

from __future__ import annotations

import pytest

from loadtests.grpc_race import Measured, read_h2load

_REPORT = """\
starting benchmark...
Main benchmark duration is over for thread #0. Stopping all clients.

finished in 3.00s, 2171.33 req/s, 405.76KB/s
requests: 6514 total, 6514 started, 6514 done, 6510 succeeded, 3 failed, 1 errored, 0 timeout
status codes: 6514 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 1.19MB (1246521) total, 127.54KB (130601) headers (space savings 91.04%), 553.32KB (566600) data
"""


def test_a_report_gives_rate_calls_bytes_and_failures() -> None:
    assert read_h2load(_REPORT) == Measured(2171.33, 6510, 566_600, 4)


def test_what_is_no_report_is_refused_with_its_end() -> None:
    with pytest.raises(ValueError, match="connection refused"):
        read_h2load("error: connection refused")

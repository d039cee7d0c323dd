"""The distribution of batch sizes, as a server's metrics tell it."""

from __future__ import annotations

import math
from typing import Any

from loadtests.batch_sizes import bars, batch_sizes, since
from server.metrics import Metrics


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_sizes_are_read_from_the_servers_own_metrics(server: Any) -> None:
    metrics = Metrics(process=False)
    for model, rows in (("digits", 1), ("digits", 1), ("digits", 7), ("digits", 64), ("lstm", 2)):
        metrics.batch_rows.labels(model, "1", "predict").observe(rows)
    metrics.batch_rows.labels("digits", "2", "predict").observe(2000)
    server.script = lambda path, body: [answer(metrics.render().body)]
    sizes = batch_sizes(server.url, "digits")
    assert {limit: count for limit, count in sizes.items() if count} == {1: 2, 8: 1, 64: 1, math.inf: 1}
    metrics.batch_rows.labels("digits", "1", "predict").observe(8)
    later = since(sizes, batch_sizes(server.url, "digits"))
    assert {limit: count for limit, count in later.items() if count} == {8: 1}
    assert batch_sizes(server.url, "unknown") == {}


def test_bars_go_up_to_the_largest_size_that_occurred() -> None:
    assert bars({1: 5, 2: 0, 4: 10, 8: 5, 16: 0, math.inf: 0}) == [
        "        1 rows        5   25%  " + "#" * 20,
        "        2 rows        0    0%",
        "      3-4 rows       10   50%  " + "#" * 40,
        "      5-8 rows        5   25%  " + "#" * 20,
    ]
    assert bars({1: 0, 2: 1, math.inf: 1})[-1] == "   over 2 rows        1   50%  " + "#" * 40
    assert bars({}) == bars({1: 0}) == ["no batches"]

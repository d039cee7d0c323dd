"""What a viewer costs, as it is compared."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtests.console_cost import Cost, compared, watching


class Console(http.server.BaseHTTPRequestHandler):
    """A stream of snapshots, many a second; a server without a console where the path begins otherwise."""

    n_viewers = 0

    def do_GET(self) -> None:
        if not self.path.startswith("/v1/"):
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        Console.n_viewers += 1
        try:
            while True:
                self.wfile.write(b"event: snapshot\ndata: {}\n\n")
                time.sleep(0.005)
        except OSError:  # the viewer left
            Console.n_viewers -= 1

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Console) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Measured:
    """What a driver returns."""

    def __init__(self, requests_per_s: float) -> None:
        self.failures: dict[str, int] = {}
        self.requests_per_s = requests_per_s


class ScriptedDriver:
    """Gives a hundred requests a second, and 97 while somebody watches; slower and slower as the machine gets busy."""

    def __init__(self) -> None:
        self.n_windows = 0

    def drive(self, url: str, path: Path, *, callers: int, duration_s: float) -> Measured:
        self.n_windows += 1
        time.sleep(duration_s)
        return Measured((97.0 if Console.n_viewers else 100.0) * 0.999**self.n_windows)


def test_windows_with_and_without_viewers_are_compared_in_pairs(url: str) -> None:
    driver: Any = ScriptedDriver()
    cost = compared(url, Path("w"), driver, n_pairs=4, window_s=0.2, callers=2, n_viewers=2)
    assert driver.n_windows == 9, "one to warm up"
    assert cost.ratio == pytest.approx(0.97, abs=0.002)
    assert cost.n_snapshots >= 4 * 2
    assert "0.97" in str(cost)


def test_the_median_counts() -> None:
    assert Cost(ratios=(0.5, 0.99, 1.0), quiet_per_s=1.0, n_snapshots=1, n_failures=0).ratio == 0.99


def test_a_viewer_that_is_refused_is_told_and_not_overlooked(url: str) -> None:
    with pytest.raises(RuntimeError, match=r"sent away.*404"), watching(url + "/elsewhere", n_viewers=1):
        pass

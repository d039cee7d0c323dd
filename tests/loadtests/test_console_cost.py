"""What a viewer costs, as it is compared."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtests.console_cost import Cost, compared, watching


class Console(http.server.BaseHTTPRequestHandler):
    """Two snapshots, then nothing more."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path.startswith("/v1/") else 404)
        self.end_headers()
        self.wfile.write(b"event: models\ndata: {}\n\n" + b"event: snapshot\ndata: {}\n\n" * 2)

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
    failures: dict[str, int] = {}

    def __init__(self, requests_per_s: float) -> None:
        self.requests_per_s = requests_per_s


class ScriptedDriver:
    """Gives a hundred requests a second, and 97 while somebody watches; slower and slower as the machine gets busy."""

    def __init__(self) -> None:
        self.n_windows = 0

    def drive(self, url: str, path: Path, *, callers: int, duration_s: float) -> Measured:
        self.n_windows += 1
        viewers = [thread for thread in threading.enumerate() if "stream" in thread.name or "poll" in thread.name]
        return Measured((97.0 if viewers else 100.0) * 0.999**self.n_windows)


def test_windows_with_and_without_viewers_are_compared_in_pairs(url: str) -> None:
    driver: Any = ScriptedDriver()
    cost = compared(url, Path("w"), driver, n_pairs=4, window_s=0.1, callers=2, n_viewers=2)
    assert driver.n_windows == 9, "one to warm up"
    assert cost.ratio == pytest.approx(0.97, abs=0.002)
    assert cost.n_snapshots == 4 * 2 * 2
    assert "0.97" in str(cost)


def test_the_median_counts() -> None:
    assert Cost(ratios=(0.5, 0.99, 1.0), quiet_per_s=1.0, n_snapshots=1, n_failures=0).ratio == 0.99


def test_a_viewer_that_is_refused_is_told_and_not_overlooked(url: str) -> None:
    with watching(url, n_viewers=1) as seen:
        pass
    assert len(seen) == 2

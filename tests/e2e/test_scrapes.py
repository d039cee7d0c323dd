"""What a scrape shows of a server of several processes: everything that its callers counted."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from loadtests.small_models import BUILD
from tests.e2e.server_process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long]

RIGHT = json.dumps({"instances": [[1, 2, 3]]}).encode()
#: What callers ask: path, body, headers.
ASKED = (
    ("/v1/models/tripled:predict", RIGHT, {}),
    ("/v2/models/tripled/infer", b"{", {}),
    ("/v1/models/tripled:predict", b'{"instances": [[1, 2]]}', {}),
    ("/v1/models/nobody:predict", RIGHT, {}),
    ("/v1/models/tripled:classify", RIGHT, {}),
    ("/v1/models/tripled:predict", b" " * 5_000 + RIGHT, {}),
    ("/v1/models/tripled:predict", RIGHT, {"Content-Encoding": "br"}),
    ("/v1/models/tripled:predict", RIGHT, {"X-Request-Timeout-Ms": "none"}),
)
N_CALLERS = 24
N_ROUNDS = 5


def test_metrics_are_those_of_one_worker_only(tmp_path: Path) -> None:
    """With four workers, sums of a scrape are what the clients counted, errors of theirs and of the server's too."""
    options = ("--import-package", "loadtests", "--http-workers", "4", "--max-body-bytes", "4096")
    with ServerProcess(tmp_path / "store", *options) as server:
        server.wait_ready()
        spec = {**BUILD["tripled"], "import_path": "loadtests.small_models:tripled"}
        answer = httpx.put(f"{server.url}/v1/models/tripled?wait=true", json=spec, timeout=300)
        assert answer.status_code == 200, answer.text
        address = server.url.removeprefix("http://")

        def ask(number: int) -> Counter[int]:
            """Ask everything a few times over a connection of its own: the kernel spreads them over the workers."""
            found: Counter[int] = Counter()
            for turn in range(N_ROUNDS * len(ASKED)):
                path, body, headers = ASKED[(number + turn) % len(ASKED)]
                # Some answers end their connection.
                connection = http.client.HTTPConnection(address, timeout=60)
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                answer.read()
                found[answer.status] += 1
                connection.close()
            return found

        before = counted(server)
        with ThreadPoolExecutor(N_CALLERS) as pool:
            codes = sum(pool.map(ask, range(N_CALLERS)), Counter())
        assert codes.keys() >= {200, 400, 404, 413, 415, 501}
        assert codes.total() == N_CALLERS * N_ROUNDS * len(ASKED)
        for _ in range(8):  # whichever worker answers
            assert counted(server) - before == codes
        assert server.terminate() == 0


def counted(server: ServerProcess) -> Counter[int]:
    """Return the requests that a scrape shows, by status code."""
    sums: Counter[int] = Counter()
    with httpx.Client() as http_:
        text = http_.get(server.url + "/metrics", timeout=30).text
    for line in text.splitlines():
        if line.startswith("rowwise_requests_total{"):
            sums[int(line.split('code="')[1].split('"')[0])] += int(float(line.rsplit(" ", 1)[1]))
    return sums

"""The server as several processes: the same answers, whatever process ends meanwhile."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc
from server_process import ServerProcess

from loadtests.ports import free_port
from server.rights import TokenEntry, add_token, digest_of, revoke_token

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

PREDICT = "/v1/models/digits:predict"
BODY = json.dumps({"instances": [[0.25] * 64]}).encode()
INFER = "/v2/models/digits/infer"
INFER_BODY = json.dumps(
    {"inputs": [{"name": "image", "shape": [1, 64], "datatype": "FP32", "data": [0.25] * 64}]}
).encode()


@pytest.fixture(scope="module")
def parted(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """An engine and two workers, with what the server in one process has built."""
    store = tmp_path_factory.mktemp("parted") / "store"
    shutil.copytree(server.store, store)
    config = store.with_name("rowwise.toml")
    config.touch()
    options = ("--http-workers", "2", "--grpc-port", str(free_port()), "--config", str(config))
    with ServerProcess(store, *options) as running:
        yield running.wait_ready()


def children(server: ServerProcess) -> dict[str, int]:
    """Return the process ids of a supervisor's children by their names."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == server.process.pid:
                found[(process / "cmdline").read_bytes().split(b"\0")[-2].decode()] = int(process.name)
        except (OSError, IndexError):
            continue
    return found


def until(holds: Callable[[], object], *, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.05)


class Callers:
    """Callers that ask until they are stopped, and note how each request ended and when."""

    def __init__(self, url: str, *, n: int, bodies: list[tuple[str, bytes]]) -> None:
        self._address = url.removeprefix("http://")
        self._bodies = bodies
        self._stopped = threading.Event()
        #: Status (0: the connection broke), when it was sent, when it ended.
        self.ends: list[tuple[int, float, float]] = []
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(n)]
        for thread in self._threads:
            thread.start()

    @property
    def codes(self) -> Counter[int]:
        return Counter(code for code, _, _ in self.ends if code)

    def _ask(self, number: int) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        while not self._stopped.is_set():
            number += 1
            path, body = self._bodies[number % len(self._bodies)]
            began = time.monotonic()
            try:
                connection.request("POST", path, body)
                answer = connection.getresponse()
                answer.read()
                code = answer.status
            except (OSError, http.client.HTTPException):
                connection.close()
                code = 0
            self.ends.append((code, began, time.monotonic()))
            if code != 200:
                time.sleep(0.01)
        connection.close()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()


def counted(server: ServerProcess) -> Counter[int]:
    """Return the requests that a scrape shows, by status code."""
    sums: Counter[int] = Counter()
    for line in httpx.get(server.url + "/metrics", timeout=30).text.splitlines():
        if line.startswith("rowwise_requests_total{"):
            sums[int(line.split('code="')[1].split('"')[0])] += int(float(line.rsplit(" ", 1)[1]))
    return sums


def bucket_of(answer: httpx.Response) -> str:
    """Return the batch size that an explained answer was computed in."""
    return answer.headers["Server-Timing"].split("bucket=")[1].split(" ")[0]


def test_sighup_to_the_supervisor_changes_settings_of_workers_that_run_and_of_those_that_follow(
    parted: ServerProcess,
) -> None:
    def statuses() -> set[int]:
        two = {"instances": [[0.25] * 64] * 2}
        return {
            httpx.post(parted.url + "/v1/models/digits:predict", json=two, timeout=30).status_code for _ in range(8)
        }

    config = parted.store.with_name("rowwise.toml")
    config.write_text("max_instances = 1\n")
    parted.process.send_signal(signal.SIGHUP)
    until(lambda: statuses() == {413})
    worker = children(parted)["worker 1"]
    os.kill(worker, signal.SIGKILL)
    until(lambda: children(parted).get("worker 1") not in (None, worker))
    until(lambda: parted.log.count("Rowwise answers on") >= 3)
    assert statuses() == {413}
    config.write_text("")
    parted.process.send_signal(signal.SIGHUP)
    until(lambda: statuses() == {200})


def test_tokens_hold_in_every_process_and_their_rates_for_all_of_them_together(parted: ServerProcess) -> None:
    tokens, config = parted.store.with_name("tokens.toml"), parted.store.with_name("rowwise.toml")
    for name, limit in (("shop", {"predict_rows_per_s": 0.001, "predict_rows_burst": 9}), ("desk", {})):
        digest = digest_of(name.encode()).hex()
        entry = {"name": name, "sha256": digest, "scopes": ["predict", "manage"], "models": ["dig*"], **limit}
        add_token(tokens, TokenEntry.model_validate(entry))

    def ask(name: str | None, method: str = "POST", path: str = PREDICT) -> int:
        """Over a connection of its own, which the kernel gives to either worker."""
        headers = {} if name is None else {"Authorization": f"Bearer {name}"}
        return httpx.request(method, parted.url + path, content=BODY, headers=headers, timeout=30).status_code

    config.write_text(f"tokens_file = {json.dumps(str(tokens))}\n")
    parted.process.send_signal(signal.SIGHUP)
    until(lambda: {ask(None) for _ in range(8)} == {401})
    assert {ask("desk") for _ in range(8)} == {200}
    assert (
        ask("desk", "GET", "/v1/models"),
        ask("desk", "GET", "/v2/models/other"),
        ask("desk", "GET", "/metrics"),
    ) == (
        200,
        403,
        403,
    )
    statuses = Counter(ask("shop") for _ in range(14))
    # Two processes that take at the same moment may take one for the price of one; these do not.
    assert statuses == {200: 9, 429: 5}
    revoke_token(tokens, "desk")
    until(lambda: {ask("desk") for _ in range(8)} | {ask("desk", "GET", "/v1/models")} == {401}, timeout_s=10)
    config.write_text("")
    parted.process.send_signal(signal.SIGHUP)
    until(lambda: {ask(None) for _ in range(8)} | {ask(None, "GET", "/v1/models")} == {200})


def test_answers_are_those_of_one_process_to_the_byte(server: ServerProcess, parted: ServerProcess) -> None:
    explained = {"X-Rowwise-Explain": "1"}
    compared = 0
    with httpx.Client(base_url=server.url) as one, httpx.Client(base_url=parted.url) as several:
        for n in range(40):
            body = json.dumps({"instances": [[(n * k) % 17 / 16 for k in range(64)]]}).encode()
            expected = one.post(PREDICT, content=body, headers=explained)
            got = several.post(PREDICT, content=body, headers=explained)
            assert got.status_code == expected.status_code == 200
            # Each server plans by its own costs; graphs of different sizes may differ in the last bit.
            if bucket_of(got) == bucket_of(expected):
                assert got.content == expected.content
                compared += 1
        assert compared > 20
        raw = np.full((1, 64), 0.25, np.float32).tobytes()
        for content, headers in (
            (INFER_BODY, {}),
            (raw, {"Inference-Header-Content-Length": "0"}),
        ):
            inferred = [http.post(INFER, content=content, headers={**explained, **headers}) for http in (one, several)]
            assert [answer.status_code for answer in inferred] == [200, 200]
            if bucket_of(inferred[0]) == bucket_of(inferred[1]):
                assert inferred[0].content == inferred[1].content
        rows = json.dumps({"inputs": [[k / 64] * 64 for k in range(50)]}).encode()
        outputs = [http.post(PREDICT, content=rows).json()["outputs"] for http in (one, several)]
        np.testing.assert_allclose(*outputs, atol=1e-6)
        for path, body in (
            ("/v1/models/digits/versions/9:predict", BODY),
            ("/v1/models/nobody:predict", BODY),
            (PREDICT, b"{"),
            (PREDICT, b'{"instances": [[1]]}'),
            ("/v1/models/digits:classify", b"{}"),
            (INFER, b"{"),
            (INFER, b'{"inputs": []}'),
            ("/v2/models/nobody/infer", INFER_BODY),
        ):
            refusals = [http.post(path, content=body) for http in (one, several)]
            assert refusals[0].status_code >= 400
            assert refusals[0].content == refusals[1].content
        for path in (
            "/v1/models/digits",
            "/v1/models/digits/metadata",
            "/v1/models/digits/certificate",
            "/v2",
            "/v2/models/digits",
            "/v2/models/digits/config",
            "/v2/models/digits/ready",
        ):
            assert several.get(path).content == one.get(path).content


def over_grpc(server: ServerProcess) -> np.ndarray[Any, Any]:
    """Return what a stock gRPC client is answered."""
    tensor = tritonclient.grpc.InferInput("image", [1, 64], "FP32")
    tensor.set_data_from_numpy(np.full((1, 64), 0.25, np.float32))
    with tritonclient.grpc.InferenceServerClient(server.grpc_address) as client:
        return client.infer("digits", [tensor]).as_numpy("probabilities")


def test_grpc_is_answered_by_the_engine_and_counted_with_what_workers_answer(parted: ServerProcess) -> None:
    expected = httpx.post(parted.url + PREDICT, content=BODY).json()["predictions"]
    before = counted(parted)
    np.testing.assert_allclose(over_grpc(parted), expected, atol=1e-6)
    assert counted(parted) - before == {200: 1}


def test_a_killed_worker_is_replaced_and_a_scrape_still_shows_what_callers_counted(parted: ServerProcess) -> None:
    before = counted(parted)
    bodies = [(PREDICT, BODY), (PREDICT, BODY), (PREDICT, b"{"), ("/v1/models/nobody:predict", BODY)]
    callers = Callers(parted.url, n=6, bodies=bodies)
    until(lambda: len(callers.ends) > 100)
    old = children(parted)
    os.kill(old["worker 1"], signal.SIGKILL)
    until(lambda: children(parted).get("worker 1", old["worker 1"]) != old["worker 1"])
    n_until_then = len(callers.ends)
    until(lambda: len(callers.ends) > n_until_then + 100)
    callers.stop()
    assert children(parted)["worker 2"] == old["worker 2"]
    assert {200, 400, 404} <= callers.codes.keys() <= {200, 400, 404}
    # What was counted for a caller whose connection broke before the answer came was nobody's answer.
    broken = sum(code == 0 for code, _, _ in callers.ends)
    surplus = counted(parted) - before - callers.codes
    assert callers.codes - (counted(parted) - before) == Counter()
    assert surplus.total() <= broken


def test_a_killed_engine_fails_what_is_under_way_before_another_is_there_and_comes_back(parted: ServerProcess) -> None:
    expected = httpx.post(parted.url + PREDICT, content=BODY).json()["predictions"]
    before = counted(parted)
    callers = Callers(parted.url, n=4, bodies=[(PREDICT, BODY)])
    until(lambda: len(callers.ends) > 50)
    engine = children(parted)["engine"]
    killed_s = time.monotonic()
    os.kill(engine, signal.SIGKILL)
    until(lambda: callers.codes[503])
    answer = httpx.get(parted.url + "/v2/health/ready")
    assert answer.status_code == 503
    assert "engine" in answer.json()["error"]
    refused = httpx.post(parted.url + PREDICT, content=BODY)
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) >= 1
    until(lambda: callers.codes[503] >= 20)
    callers.stop()
    assert httpx.get(parted.url + "/v2/health/ready").status_code == 503, "nobody waits until another engine is there"
    assert any(began <= killed_s < end for _, began, end in callers.ends), "somebody was being answered by it"
    assert callers.codes.keys() == {200, 503}
    assert not [code for code, _, _ in callers.ends if code == 0], "workers keep their connections"
    parted.wait_ready()
    assert children(parted)["engine"] != engine
    again = httpx.post(parted.url + PREDICT, content=BODY)
    assert again.status_code == 200
    np.testing.assert_allclose(again.json()["predictions"], expected, atol=1e-6)
    np.testing.assert_allclose(over_grpc(parted), expected, atol=1e-6)
    # Every answer was counted, those that no engine was there for too: and nothing was forgotten with the engine.
    now = counted(parted) - before
    assert now[200] == callers.codes[200] + 2
    assert now[503] == callers.codes[503] + 1


def test_sigterm_answers_what_was_accepted_and_ends_every_process(parted: ServerProcess) -> None:
    connections = [http.client.HTTPConnection(parted.url.removeprefix("http://"), timeout=60) for _ in range(6)]
    for connection in connections:
        connection.request("POST", PREDICT, BODY)
        assert connection.getresponse().read()
    pids = children(parted)
    large = json.dumps({"instances": [[0.5] * 64] * 600}).encode()
    for connection in connections:
        connection.request("POST", PREDICT, large)
    parted.process.send_signal(signal.SIGTERM)
    answers = [connection.getresponse() for connection in connections]
    assert [answer.status for answer in answers] == [200] * 6
    assert {len(json.loads(answer.read())["predictions"]) for answer in answers} == {600}
    for connection in connections:
        connection.close()
    assert parted.process.wait(40) == 0
    assert not [name for name, pid in pids.items() if Path(f"/proc/{pid}").exists()]


def test_the_others_end_by_themselves_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "store", "--http-workers", "1") as server:
        server.wait_ready()
        pids = children(server)
        assert set(pids) == {"engine", "worker 1"}
        server.kill()
        until(lambda: not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()], timeout_s=20)


def test_what_the_engine_refuses_to_start_with_ends_the_server_with_its_sentence(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--http-workers", "1", "--model", "digits", waits=False)
    assert server.process.wait(60) == 1
    assert "expected NAME=MODULE:FUNCTION" in server.log


def test_a_port_for_grpc_that_is_in_use_is_said_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        server = ServerProcess(tmp_path / "store", "--http-workers", "1", "--grpc-port", port, waits=False)
        assert server.process.wait(60) == 1
    assert f"can't listen on 127.0.0.1:{port}" in server.log
    assert "engine" not in server.log

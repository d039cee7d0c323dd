"""Replicas on a Ray cluster of this machine: answers, versions, kills and scaling, each under load.

What they serve is another server's store, which they follow. `make test-ray` runs it, in an environment with Ray.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from loadtests.faults import register
from loadtests.ledger import Callers, End, Ledger
from loadtests.ports import free_port
from loadtests.processes import until
from loadtests.ray_cluster import RayCluster, ray_application
from loadtests.small_models import Question, question
from loadtests.workload import load, make
from tests.e2e.server_process import ServerProcess

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: make test-ray"),
    pytest.mark.timeout(3_600),
]

N_CALLERS = 8
LEAST, MOST = 2, 4
#: Patience with replicas that start: each loads TensorFlow, and the machine may have two cores.
_START_S = 240.0
#: Replicas that start beside others under load took up to three times as long as the first ones, on two busy cores.
_LONGER = 8.0
#: A few callers with many rows each, who pause: far more rows than the replicas should hold, and most of the machine
#: is left for replicas to start on. All of them fit one replica's queue.
_N_MANY, _ROWS_OF_EACH, _PAUSE_S = 8, 500, 0.1


@dataclass(frozen=True)
class Served:
    """Replicas, and the server whose store they follow."""

    url: str
    writer: ServerProcess
    cluster: RayCluster
    #: Seconds for which to wait for a replica that starts, by those that the first ones took.
    patience_s: float
    application: str = "rowwise"

    def n_started(self) -> int:
        return sum(self.cluster.replicas(self.application).values())

    def activate(self, model: str, version: int) -> None:
        answer = httpx.post(f"{self.writer.url}/v1/models/{model}/versions/{version}:activate", timeout=60)
        assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the digits, and with two versions of one small model; the second of them is active."""
    store = tmp_path_factory.mktemp("ray") / "store"
    with ServerProcess(store, "--import-package", "models", "--import-package", "loadtests") as running:
        digits = {"import_path": "models.digits:predict", "buckets": [1, 8, 32]}
        answer = httpx.put(f"{running.url}/v1/models/digits?wait=true", json=digits, timeout=_START_S)
        assert answer.status_code in (200, 201), answer.text
        for function in ("tripled", "negated"):
            register(running.url, "vector", function)
        yield running


@pytest.fixture(scope="module", params=[False, True], ids=["own proxy", "HAProxy"])
def served(
    request: pytest.FixtureRequest, writer: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("cluster")
    command = ["deploy/ray_serve.py", "--store", str(writer.store), "--follow-store", "--follow-s", "0.5"]
    command += ["--port", str(free_port()), "--min-replicas", str(LEAST), "--max-replicas", str(MOST)]
    command += ["--target-rows", "20", "--upscale-delay-s", "1", "--downscale-delay-s", "20", "--grace-s", "10"]
    command += ["--haproxy"] if request.param else []
    with RayCluster(directory, n_cpus=MOST, haproxy=request.param) as cluster:
        began_s = time.monotonic()
        with ray_application(cluster, directory, "rowwise", command, ready="/v2/health/ready") as url:
            patience_s = max(_START_S, _LONGER * (time.monotonic() - began_s))
            yield Served(url, writer, cluster, patience_s)


def right_more(ledger: Ledger, n: int) -> Callable[[], bool]:
    before = ledger.ends[End.RIGHT]
    return lambda: ledger.ends[End.RIGHT] >= before + n


def wrong_digits(url: str, directory: Path) -> list[str]:
    """Ask for every digit of the data set once, and return what is not the function's own answer."""
    workload = load(make("digits", directory))
    n = len(workload.bodies)
    assert n == 1_797

    def ask(index: int) -> str:
        answer = client.post(url + workload.path, content=workload.bodies[index])
        is_right = answer.status_code == 200 and workload.accepts(index, answer.content)
        return "" if is_right else f"request {index}: {answer.status_code} {answer.text[:300]}"

    # A client that goes by "Connection: close": HAProxy says it when its replicas have changed.
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(N_CALLERS) as callers:
        return [said for said in callers.map(ask, range(n)) if said]


def test_answers_are_those_of_the_function_alone(served: Served, tmp_path: Path) -> None:
    assert wrong_digits(served.url, tmp_path) == []


def test_the_whole_interface_is_there(served: Served) -> None:
    with httpx.Client(base_url=served.url, timeout=60) as client:
        assert client.get("/v2/health/live").json() == {"live": True}
        assert client.get("/v2/models/digits").json()["inputs"][0]["name"] == "image"
        assert client.get("/v1/models/digits").json()["model_version_status"][0]["state"] == "AVAILABLE"
        zeros = {"inputs": [{"name": "image", "shape": [1, 64], "datatype": "FP32", "data": [0.0] * 64}]}
        assert client.post("/v2/models/digits/infer", json=zeros).json()["outputs"][0]["shape"] == [1, 10]
        assert "rowwise_batches_total" in client.get("/metrics").text
        refused = client.post("/v1/models/vector/versions/1:activate")
        assert refused.status_code == 403, "behind a proxy nobody is on this machine"
        bad = client.post("/v1/models/digits:predict", json={"instances": [[1.0]]})
        assert (bad.status_code, "image" in bad.json()["error"]) == (400, True)
        assert client.post("/v1/models/nobody:predict", json={"instances": [1]}).status_code == 404


def test_versions_are_switched_on_all_replicas_and_no_request_fails(served: Served) -> None:
    ledger = Ledger()
    for version, function in ((1, "tripled"), (2, "negated")):
        with Callers(served.url, ledger, lambda n: question(n, "vector", "tripled", "negated"), n=N_CALLERS):
            until(right_more(ledger, 50), "answers before the switch")
            served.activate("vector", version)
            until(partial(answers_alike, served.url, function, 20), f"{function} on all replicas")
            until(right_more(ledger, 50), "answers after the switch")
    assert ledger.difference() == 0
    assert ledger.ends.keys() == {End.RIGHT}, (ledger.ends, ledger.unexplained)
    print(f"two switches of versions: {dict(ledger.ends)}", file=sys.stderr)


def answers_alike(url: str, function: str, n: int) -> bool:
    """Return whether so many requests, each on a connection of its own, are answered by one function."""
    for number in range(n):
        asked = question(number, "vector", function)
        answer = httpx.post(url + asked.path, content=asked.body, timeout=60)
        if answer.status_code != 200 or not asked.accepts(answer.content):
            return False
    return True


def test_two_replicas_are_killed_and_only_what_they_were_doing_is_sent_away(served: Served) -> None:
    until(lambda: served.n_started() >= LEAST, "two replicas", timeout_s=served.patience_s)
    ledger = Ledger()
    killed: list[int] = []
    with Callers(served.url, ledger, lambda n: question(n, "vector", "tripled", "negated"), n=N_CALLERS):
        for _ in range(2):
            until(right_more(ledger, 100), "answers before a kill")
            victim = next(pid for pid, has_started in served.cluster.replicas("rowwise").items() if has_started)
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
            until(right_more(ledger, 100), "answers by who is left")
            until(lambda: restarted(served, killed), "a replica in its place", timeout_s=served.patience_s)
        until(right_more(ledger, 100), "answers at the end")
    assert ledger.difference() == 0
    assert ledger.ends.keys() <= {End.RIGHT, End.LATER}, (ledger.ends, ledger.unexplained)
    # A caller waits for one answer at a time: more can't have been with the two that were killed.
    assert ledger.ends[End.LATER] <= 2 * N_CALLERS, ledger.ends
    print(f"two replicas killed: {dict(ledger.ends)}", file=sys.stderr)


def restarted(served: Served, killed: list[int]) -> bool:
    replicas = served.cluster.replicas("rowwise")
    return not replicas.keys() & set(killed) and sum(replicas.values()) >= LEAST


def test_replicas_come_with_the_rows_and_go_without_them(served: Served, tmp_path: Path) -> None:
    until(lambda: served.n_started() == LEAST, "as many as must be", timeout_s=served.patience_s)
    ledger = Ledger()
    began_s = time.monotonic()
    with Callers(served.url, ledger, many_rows, n=_N_MANY, pause_s=_PAUSE_S):
        until(lambda: served.n_started() == MOST, "as many as may be", timeout_s=served.patience_s)
        more_s = time.monotonic() - began_s
        until(right_more(ledger, 100), "answers by all")
        assert wrong_digits(served.url, tmp_path) == []
    began_s = time.monotonic()
    until(lambda: served.n_started() == LEAST, "as many as must be", timeout_s=served.patience_s)
    fewer_s = time.monotonic() - began_s
    # Whoever went had answered what it had.
    assert ledger.difference() == 0
    assert ledger.ends.keys() == {End.RIGHT}, (ledger.ends, ledger.unexplained)
    scaled = f"{LEAST} to {MOST} replicas in {more_s:.0f} s, back in {fewer_s:.0f} s"
    print(f"{scaled}: {dict(ledger.ends)}, of {_ROWS_OF_EACH} rows each", file=sys.stderr)


def many_rows(number: int) -> Question:
    return question(number, "vector", "tripled", "negated", n_rows=_ROWS_OF_EACH)

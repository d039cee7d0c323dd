"""Registering, switching, restarting and stopping the real server."""

from __future__ import annotations

import io
import json
import shutil
import signal
import socket
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import tensorflow as tf
from server_process import ServerProcess

import rowwise
import rowwise.errors

pytestmark = pytest.mark.e2e


def halving(x: tf.Tensor) -> dict[str, tf.Tensor]:
    """Halve until the sum is below one: a different number of steps for each example."""
    steps = 0
    while tf.reduce_sum(tf.abs(x)) >= 1.0:
        x = x / 2.0
        steps += 1
    if x[0] > 0.0:
        sign = 1.0
    else:
        sign = -1.0
    return {"x": x, "steps": steps, "sign": sign}


def doubling(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"x": x * 2.0, "steps": tf.constant(0), "sign": tf.constant(0.0)}


@pytest.fixture(scope="module")
def registered(server: ServerProcess) -> ServerProcess:
    with rowwise.Client(server.url) as client:
        status = client.register("halving", halving, inputs={"x": tf.TensorSpec([3])}, buckets=[1, 4], labels={})
        assert status.state == "AVAILABLE"
    return server


def test_a_function_registered_over_http_answers_as_it_does_alone(registered: ServerProcess) -> None:
    rng = np.random.default_rng(0)
    with rowwise.Client(registered.url) as client:
        for x in rng.normal(scale=20.0, size=(20, 3)).astype(np.float32):
            expected = halving(tf.constant(x))
            got = client.predict("halving", x=x)
            assert int(got["steps"]) == int(expected["steps"])
            np.testing.assert_allclose(got["x"], expected["x"], rtol=1e-6)


def test_versions_switch_and_roll_back_without_a_failed_request(registered: ServerProcess) -> None:
    failures: list[str] = []
    stop = threading.Event()
    x = [[4.0, 0.0, 0.0]]

    def ask_until_stopped() -> None:
        with httpx.Client(base_url=registered.url) as http:
            while not stop.is_set():
                answer = http.post("/v1/models/halving:predict", json={"instances": x})
                if answer.status_code != 200 or answer.json()["predictions"][0]["x"][0] not in (0.5, 8.0):
                    failures.append(answer.text)

    callers = [threading.Thread(target=ask_until_stopped) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        with rowwise.Client(registered.url) as client:
            second = client.register("halving", doubling, inputs={"x": tf.TensorSpec([3])}, buckets=[1, 4])
            assert client.predict("halving", x=np.array(x[0], np.float32))["x"][0] == 8.0
            client.activate("halving", second.version - 1)
            assert client.predict("halving", x=np.array(x[0], np.float32))["x"][0] == 0.5
    finally:
        stop.set()
        for caller in callers:
            caller.join()
    assert failures == []


def test_a_function_that_cannot_be_batched_is_refused_by_name_and_the_old_version_goes_on(
    registered: ServerProcess,
) -> None:
    def counting(x: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.SerializeTensor(tensor=x)

    with rowwise.Client(registered.url) as client:
        with pytest.raises(rowwise.errors.BuildFailed, match="SerializeTensor"):
            client.register("halving", counting, inputs={"x": tf.TensorSpec([3])}, buckets=[2])
        assert client.predict("halving", x=np.zeros(3, np.float32))["steps"] == 0


def shares(x: tf.Tensor) -> tf.Tensor:
    """Divide 840 by a whole number: zero is an example that TensorFlow refuses."""
    return 840 // x


def test_bad_examples_fail_alone_and_their_batch_mates_get_their_answers(server: ServerProcess) -> None:
    with rowwise.Client(server.url) as client:
        client.register("shares", shares, inputs={"x": tf.TensorSpec([], tf.int32)}, buckets=[1, 16])
    numbers = [1, 2, 0, 4, 5, 6, 7, 8, 0, 10] * 20
    with httpx.Client(base_url=server.url, limits=httpx.Limits(max_connections=32)) as http:

        def ask(number: int) -> tuple[int, object]:
            answer = http.post("/v1/models/shares:predict", json={"instances": [number]})
            return answer.status_code, answer.json()

        with ThreadPoolExecutor(32) as callers:
            answers = list(callers.map(ask, numbers))
    for number, (status, body) in zip(numbers, answers, strict=True):
        if number:
            assert (status, body) == (200, {"predictions": [840 // number]})
        else:
            assert status == 400
            assert "division by zero" in str(body)


def test_an_archive_that_is_no_saved_model_is_refused(server: ServerProcess) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("readme.txt")
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"hi"))
    answer = httpx.put(
        server.url + "/v1/models/broken?wait=true",
        files={"archive": ("broken.tar.gz", buffer.getvalue())},
        data={"spec": json.dumps({})},
        timeout=60,
    )
    assert answer.status_code == 400, answer.text
    assert "saved_model.pb" in answer.json()["error"]


@pytest.mark.parametrize("name", ["..", "a%2Fb", "a b", "%00", "é", "x" * 101])
def test_a_name_that_could_climb_is_refused(server: ServerProcess, name: str) -> None:
    answer = httpx.put(f"{server.url}/v1/models/{name}", json={"import_path": "models.digits:predict"})
    assert 400 <= answer.status_code < 500, answer.text


def test_an_import_outside_of_the_listed_packages_is_refused(server: ServerProcess) -> None:
    answer = httpx.put(f"{server.url}/v1/models/evil?wait=true", json={"import_path": "os:system"}, timeout=60)
    assert 400 <= answer.status_code < 500
    assert "os" in answer.json()["error"]


@pytest.mark.long  # test_processes.py starts a server from a store that another has written; tests/catalog, restarts
def test_a_restarted_server_serves_what_was_active_without_building(tmp_path: Path) -> None:
    store = tmp_path / "store"
    x = np.array([5.0, 1.0, -2.0], np.float32)
    with ServerProcess(store, "--token", "secret") as first:
        with rowwise.Client(first.url, token="wrong") as stranger, pytest.raises(rowwise.errors.Unauthorized):
            stranger.register("halving", halving, inputs={"x": tf.TensorSpec([3])})
        with rowwise.Client(first.url, token="secret") as client:
            client.register("halving", halving, inputs={"x": tf.TensorSpec([3])}, buckets=[2])
            before = client.predict("halving", x=x)
        first.kill()
    with ServerProcess(store, "--token", "secret") as second:
        second.wait_ready()
        metrics = httpx.get(second.url + "/metrics").text
        assert not [line for line in metrics.splitlines() if line.startswith("rowwise_builds_total")]
        with rowwise.Client(second.url, token="secret") as client:
            np.testing.assert_array_equal(client.predict("halving", x=x)["x"], before["x"])
        assert second.terminate() == 0


def test_a_second_server_on_the_same_store_says_who_has_it(server: ServerProcess) -> None:
    # The log's first line names the store of the running server.
    store = server.log.split("(store: ", 1)[1].split(")", 1)[0]
    with pytest.raises(AssertionError, match=f"in use by process {server.process.pid}"):
        ServerProcess(Path(store))


def test_a_port_for_grpc_that_is_in_use_is_said_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(AssertionError, match=f"can't listen on 127.0.0.1:{port}: .*choose another --grpc-port"):
            ServerProcess(tmp_path / "store", "--grpc-port", port)


@pytest.mark.long  # test_processes.py does both with several processes, tests/web/test_stopping.py in one
def test_sighup_changes_settings_and_sigterm_answers_what_was_accepted(server: ServerProcess, tmp_path: Path) -> None:
    config = tmp_path / "rowwise.toml"
    config.write_text("max_instances = 1_000\n")
    store = tmp_path / "store"
    shutil.copytree(server.store, store)
    with ServerProcess(store, "--config", str(config)) as own:
        own.wait_ready()
        config.write_text("max_instances = 2_000\n")
        own.process.send_signal(signal.SIGHUP)
        deadline_s = time.monotonic() + 20
        while "SIGHUP: changed: max_instances" not in own.log and time.monotonic() < deadline_s:
            time.sleep(0.05)
        body = json.dumps({"instances": [[0.5] * 64] * 2_000}).encode()
        answers: list[int] = []

        def ask() -> None:
            answers.append(httpx.post(own.url + "/v1/models/digits:predict", content=body, timeout=30).status_code)

        callers = [threading.Thread(target=ask) for _ in range(2)]
        for caller in callers:
            caller.start()
        # One request alone has 2,000 rows: with more than those, both have been accepted.
        while own.counted("rowwise_rows_total") + own.counted("rowwise_queue_rows") <= 2_000:
            pass
        assert own.terminate() == 0
        for caller in callers:
            caller.join()
        assert answers == [200, 200]

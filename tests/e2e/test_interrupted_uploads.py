"""An upload in pieces over the end of the server: killed while a piece comes, started again, and gone on with."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from server_process import ServerProcess

from loadtests.ports import free_port
from rowwise import Client
from rowwise.version_status import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.long]

_MIB = 2**20


def large_model(directory: Path) -> np.ndarray:
    """Save a model whose archive is too large for one request, and return its weights."""
    weights = np.random.default_rng(5).normal(size=(64, 100_000)).astype(np.float32)

    class Projection(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(weights)

        @tf.function(input_signature=[tf.TensorSpec([64], tf.float32, name="x")])
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return tf.reduce_max(tf.linalg.matvec(self.weights, x, transpose_a=True))

    model = Projection()
    tf.saved_model.save(model, str(directory), signatures=model.__call__.get_concrete_function())
    return weights


def kill_when_there_are(server: ServerProcess, n_bytes: int) -> int:
    """Kill the server once so much of an upload is on its disk; return how much there is then."""
    deadline_s = time.monotonic() + 120.0
    while time.monotonic() < deadline_s:
        parts = list((server.store / "partial-uploads").glob("*.part"))
        if parts and parts[0].stat().st_size >= n_bytes:
            server.kill()
            return parts[0].stat().st_size
        time.sleep(0.001)
    raise AssertionError("nothing is being uploaded")


def test_a_client_goes_on_with_an_upload_over_the_death_of_the_server(tmp_path: Path) -> None:
    weights = large_model(tmp_path / "model")
    port = ("--port", str(free_port()))
    stages: list[Stage] = []
    servers = [ServerProcess(tmp_path / "store", *port)]
    there: list[int] = []

    def kill_and_start_again() -> None:
        # In the middle of the second piece of 8 MiB, and again in the third.
        for n_bytes in (10 * _MIB, 18 * _MIB):
            there.append(kill_when_there_are(servers[-1], n_bytes))
            servers.append(ServerProcess(tmp_path / "store", *port))

    killing = threading.Thread(target=kill_and_start_again)
    killing.start()
    try:
        with Client(f"http://127.0.0.1:{port[1]}") as client:
            client.register("large", tmp_path / "model", buckets=(1, 2), on_stage=stages.append)
            x = np.linspace(-1.0, 1.0, 64, dtype=np.float32)
            answer = client.predict("large", x=x)
        killing.join(120)
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.terminate()
    np.testing.assert_allclose(answer, (x @ weights).max(), rtol=1e-5)
    assert len(there) == 2
    sent = [stage.done * 1024 for stage in stages if stage.name == "upload" and stage.done is not None]
    assert sent == sorted(sent), "it began anew"
    # It went on right behind what was on the disk when the server was killed.
    assert {n_bytes // 1024 * 1024 for n_bytes in there} <= set(sent)
    assert list(servers[-1].store.rglob("*.part")) == []

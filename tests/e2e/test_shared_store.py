"""Two real servers over one real bucket: registering, following, dying in the middle, losing the bucket."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from server_process import ServerProcess

import rowwise
import rowwise.errors

_spec = importlib.util.spec_from_file_location("bucket_server", Path(__file__).with_name("bucket_server.py"))
assert _spec is not None
assert _spec.loader is not None
bucket_server = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bucket_server)

pytestmark = [pytest.mark.e2e, pytest.mark.long]

TARGET = "models.implied_volatility:predict"
EXAMPLE = {"price": 8.0, "forward": 100.0, "strike": 100.0, "years": 1.0, "is_call": True}
OPTIONS = ("--bucket", f"s3://{bucket_server.BUCKET}/team", "--follow-s", "0.2", "--import-package", "models")


@pytest.fixture
def bucket() -> Iterator[bucket_server.BucketServer]:
    with bucket_server.BucketServer() as running:
        yield running


def until(condition: Callable[[], bool], *, timeout_s: float = 240.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


def test_what_one_server_registers_another_serves_whatever_dies_on_the_way(
    tmp_path: Path, bucket: bucket_server.BucketServer
) -> None:
    def start(name: str) -> ServerProcess:
        return ServerProcess(tmp_path / name, *OPTIONS, environment=bucket.environment)

    def active(server: ServerProcess) -> int:
        answer = httpx.get(f"{server.url}/v1/models").json()["models"]
        return next((version["version"] for version in answer if version["active"]), 0)

    def answer(server: ServerProcess) -> float:
        with rowwise.Client(server.url) as client:
            return float(client.predict("newton", **EXAMPLE))

    def serves(server: ServerProcess, version: int) -> bool:
        with contextlib.suppress(rowwise.errors.Overloaded, rowwise.errors.NotFound):  # it is not loaded there yet
            return active(server) == version and answer(server) == expected
        return False

    def register(server: ServerProcess) -> None:
        with rowwise.Client(server.url) as client:
            assert client.register_import("newton", TARGET, buckets=[1, 2]).state == "AVAILABLE"

    with start("one") as one, start("two") as two:
        register(one)
        expected = answer(one)
        until(lambda: serves(two, 1))
        register(two)
        until(lambda: serves(one, 2))
        with rowwise.Client(one.url) as client:
            client.rollback("newton")
            client.set_label("newton", "next", 2)
        until(lambda: serves(two, 1))
        by_label = f"{two.url}/v1/models/newton/labels/next:predict"
        until(lambda: httpx.post(by_label, json={"instances": [EXAMPLE]}).status_code == 200)

        # One is killed in the middle of an upload.
        bucket.holds_uploads.set()
        taken = httpx.put(f"{one.url}/v1/models/newton", json={"import_path": TARGET, "buckets": [1, 4]}, timeout=60)
        assert taken.json()["version"] == 3
        assert bucket.held_up.wait(240)
        one.kill()
        bucket.holds_uploads.clear()
        time.sleep(1.0)
        states = {each["version"]: each["state"] for each in httpx.get(f"{two.url}/v1/models").json()["models"]}
        assert states[3] == "BUILDING"
        assert serves(two, 1)
        with start("one") as again:
            until(lambda: serves(again, 3))
            until(lambda: serves(two, 3))

            # The bucket is gone, and comes back.
            bucket.is_cut = True
            until(lambda: "notes" in httpx.get(f"{two.url}/v2/health/ready").json())
            told = httpx.get(f"{two.url}/v1/status").json()["store"]
            assert f"s3://{bucket_server.BUCKET}/team can't be reached" in told["trouble"]
            assert serves(two, 3)
            refused = httpx.delete(f"{two.url}/v1/models/newton/labels/next", timeout=60)
            assert (refused.status_code, "can't be reached" in refused.json()["error"]) == (503, True)
            # A server starts without it, too, and serves what it has.
            again.kill()
            with start("one") as third:
                until(lambda: serves(third, 3))
                bucket.is_cut = False
                until(lambda: httpx.get(f"{third.url}/v2/health/ready").json() == {"ready": True})
                httpx.post(f"{two.url}/v1/models/newton/versions/2:activate", timeout=60).raise_for_status()
                until(lambda: serves(third, 2))

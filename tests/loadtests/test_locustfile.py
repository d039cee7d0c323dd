"""The locust scenarios, run by locust itself against a small server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from loadtests import workload

pytestmark = pytest.mark.slow

MODEL = "embedding"


def answer(body: bytes, *, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


class Embeddings:
    """Answers as a server that holds the embedding model would, with one wrong number in ``spoil`` answers."""

    def __init__(self, *, spoil: int = 0) -> None:
        made = workload.build(MODEL)
        self._answers = {
            orjson.dumps(orjson.loads(body)["instances"][0]): given
            for body, given in zip(made.bodies, made.answers, strict=True)
        }
        self._spoil = spoil
        self.refused = 0

    def __call__(self, path: str, body: bytes) -> list[bytes]:
        if path == f"/v1/models/{MODEL}":
            return [answer(b"{}")]
        if path != f"/v1/models/{MODEL}:predict":
            return [answer(b'{"error":"unknown model"}', status="404 Not Found")]
        instances = orjson.loads(body)["instances"]
        if isinstance(instances[0], dict):
            self.refused += 1
            return [answer(b'{"error":"wrong shape"}', status="400 Bad Request")]
        predictions = [list(self._answers[orjson.dumps(instance)]) for instance in instances]
        if self._spoil:
            self._spoil -= 1
            predictions[-1][0] += 0.5
        return [answer(orjson.dumps({"predictions": predictions}))]


def locust(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py", "--headless", "--only-summary"]
    return subprocess.run(
        [*command, "--host", url, "-u", "8", "-r", "8", "-t", "4s", *options],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


def test_right_answers_pass_and_models_that_are_not_served_are_left_out(server: Any) -> None:
    server.script = Embeddings()
    result = locust(server.url)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "embedding: one example" in result.stderr + result.stdout
    assert "lstm: one example" not in result.stderr + result.stdout
    assert server.script.refused > 0, "a wrong request is part of the mix"
    assert len(server.asked) > 50


def test_a_wrong_answer_fails_the_run(server: Any) -> None:
    server.script = Embeddings(spoil=3)
    result = locust(server.url, "--models", MODEL)
    assert result.returncode == 1, result.stderr[-2000:]
    assert "wrong answer" in result.stderr + result.stdout


def test_a_server_without_any_of_the_models_is_said_to_be_so(server: Any) -> None:
    server.script = Embeddings()
    result = locust(server.url, "--models", "lstm")
    assert result.returncode == 2, result.stderr[-2000:]
    assert "serves none of lstm" in result.stderr + result.stdout

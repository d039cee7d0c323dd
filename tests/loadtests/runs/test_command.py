"""``rowwise loadtest`` as it is typed, against a small server."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from loadtests.ports import free_port
from loadtests.runs.crew import Crew
from loadtests.runs.generator import Generator
from loadtests.runs.questions import Questions
from rowwise.cli import app
from tests.loadtests.test_driver import answer, doubled

Server = Any  # ScriptedServer of conftest.py

_X = {"name": "x:0", "dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}]}}
METADATA = orjson.dumps(
    {"metadata": {"signature_def": {"signature_def": {"serving_default": {"inputs": {"x": _X}, "outputs": {"y": _X}}}}}}
)
BRIEF = ("--duration", "0.4", "--warmup", "0.1", "--engine", "driver")


class Doubling:
    """Has two models that double; refuses every ``refused``-th prediction."""

    def __init__(self, *, refused: int = 0) -> None:
        self._numbers = itertools.count(1)
        self._refused = refused

    def __call__(self, path: str, body: bytes) -> list[bytes]:
        if path in {"/v1/models/double/metadata", "/v1/models/twice/metadata"}:
            return [answer(METADATA)]
        if not path.endswith(("double:predict", "twice:predict")):
            return [answer(b'{"error":"no such model"}', status="404 Not Found")]
        if self._refused and next(self._numbers) % self._refused == 0:
            return [answer(b'{"error":"full"}', status="503 Service Unavailable")]
        return [answer(doubled(body))]


@pytest.fixture
def run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command, and return its result and its report."""
    monkeypatch.delenv("ROWWISE_TOKEN", raising=False)
    server.script = Doubling()
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})

    def invoke(*arguments: str) -> tuple[Any, dict[str, Any]]:
        output = tmp_path / "report"
        result = runner.invoke(app, ["loadtest", server.url, "--output", str(output), *arguments])
        file = output / "report.json"
        return result, json.loads(file.read_text()) if file.exists() else {}

    return invoke


def test_a_closed_loop_ends_with_a_table_a_page_and_its_figures(run: Any, server: Server, tmp_path: Path) -> None:
    result, report = run("--model", "double", "--callers", "3", "--check", *BRIEF)
    assert result.exit_code == 0, result.output
    assert "3 callers" in result.stdout
    figures = report["run"]["figures"]
    assert figures["n_failed"] == 0
    assert figures["n_requests"] <= len(server.asked)
    assert report["generator"]["engine"] == "driver"
    assert report["models"][0]["is_checked"]
    assert "<svg" in (tmp_path / "report" / "report.html").read_text()


def test_json_is_all_that_standard_output_has(run: Any) -> None:
    result, report = run("--model", "double", "--rate", "50", "--json", *BRIEF)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == report
    assert report["run"]["load"]["kind"] == "open"


def test_failures_miss_the_target_unless_they_are_allowed(run: Any, server: Server) -> None:
    server.script = Doubling(refused=10)
    result, report = run("--model", "double", *BRIEF)
    assert result.exit_code == 1
    assert "Missed: share of failures" in result.stdout
    assert report["run"]["figures"]["failures"][0]["example"] == '{"error":"full"}'
    assert run("--model", "double", "--max-errors", "0.5", *BRIEF)[0].exit_code == 0


def test_a_p99_that_is_missed_is_exit_1(run: Any) -> None:
    result, _ = run("--model", "double", "--p99-ms", "0.001", *BRIEF)
    assert result.exit_code == 1
    assert "Missed: p99, ms" in result.stdout


def test_a_mix_of_models_with_recorded_inputs(run: Any, server: Server, tmp_path: Path) -> None:
    (tmp_path / "double.jsonl").write_text('1.5\n{"x": 3}\n')
    np.save(tmp_path / "twice.npy", np.arange(4, dtype=np.float32))
    files = [f"{name}={tmp_path / file}" for name, file in (("double", "double.jsonl"), ("twice", "twice.npy"))]
    _, report = run("--model", "double=3", "--model", "twice", "--inputs", files[0], "--inputs", files[1], *BRIEF)
    assert set(report["run"]["by_model"]) == {"double", "twice"}
    sent = {body for path, body in server.asked if path == "/v1/models/double:predict"}
    assert sent == {b'{"instances":[1.5]}', b'{"instances":[3]}'}
    assert [model["n_questions"] for model in report["models"]] == [2, 4]


@pytest.mark.long  # what it does is tried without a server in test_ramp.py
def test_a_ramp_says_what_it_found_and_why_it_stopped(run: Any, server: Server) -> None:
    def script(path: str, body: bytes) -> list[bytes]:
        time.sleep(0.02)
        return Doubling()(path, body)

    server.script = script
    result, report = run("--model", "double", "--ramp", "--p99-ms", "500", "--precision", "0.5", *BRIEF)
    assert result.exit_code == 0, result.output
    found = report["ramp"]
    # One request at a time, 20 ms each, makes 50 a second, whatever else the machine does.
    assert 0 < found["capacity_per_s"] <= 60
    assert "Capacity:" in result.stdout
    assert found["reason"] in result.stdout
    assert not all(step["holds"] for step in found["steps"])


def test_two_servers_are_compared_in_turn(run: Any, server: Server) -> None:
    result, report = run("--model", "double", "--compare", server.url, "--repeats", "2", *BRIEF)
    assert result.exit_code == 0, result.output
    first, second = report["comparison"]["contenders"]
    assert len(first["runs"]) == len(second["runs"]) == 2
    assert second["name"].endswith("(again)")
    assert len(report["comparison"]["ratios"]["requests_per_s"]["pairs"]) == 2


def test_a_token_goes_to_its_own_server_alone(run: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool]] = []
    requests = Questions.requests
    other = server.url.replace("127.0.0.1", "localhost")

    def watched(questions: Questions, host: str) -> list[bytes]:
        made = requests(questions, host)
        seen.append((host, b"s3cr3t" in made[0]))
        return made

    monkeypatch.setattr(Questions, "requests", watched)
    monkeypatch.setattr(Crew, "run", lambda crew, load, **_: Generator(crew._plan(load, 0, 1)).run())
    result, _ = run("--model", "double", "--token", "s3cr3t", "--compare", other, "--repeats", "1", *BRIEF)
    assert result.exit_code == 0, result.output
    assert seen == [(server.url.removeprefix("http://"), True), (other.removeprefix("http://"), False)]


def test_the_token_is_sent_and_not_reported(run: Any, server: Server) -> None:
    result, report = run("--model", "double", "--token", "s3cr3t", *BRIEF)
    assert result.exit_code == 0
    assert "s3cr3t" not in json.dumps(report)
    assert report["settings"]["token"] == "given"


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((), "which models"),
        (("--model", "double=x"), "no weight"),
        (("--model", "double=0"), "above 0"),
        (("--model", "double", "--callers", "2", "--rate", "3"), "closed loop"),
        (("--model", "double", "--ramp"), "say which"),
        (("--model", "double", "--ramp", "--p99-ms", "5", "--baseline", "m:f"), "one server"),
        (("--model", "double", "--compare", "ftp://x"), "expected a URL"),
        (("--model", "double", "--rate", "3", "--engine", "locust"), "open loop"),
        (("--model", "double", "--inputs", "other=x.npy"), "no --model other"),
        (("--model", "a", "--model", "b", "--inputs", "x.npy"), "several models"),
    ],
)
def test_a_wrong_command_line_is_exit_2_and_loads_nothing(
    run: Any, server: Server, arguments: tuple[str, ...], match: str
) -> None:
    result, _ = run(*arguments)
    assert result.exit_code == 2
    assert match in " ".join(result.stderr.split())
    assert server.asked == []


def test_a_server_that_can_not_be_reached_is_exit_3_as_of_all_commands(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    result = CliRunner().invoke(
        app, ["loadtest", url, "--model", "double", "--output", str(tmp_path / "report"), *BRIEF]
    )
    assert result.exit_code == 3
    assert "is the server running there?" in result.stderr


def test_what_the_server_refuses_is_told_before_it_is_loaded(run: Any, server: Server) -> None:
    result, _ = run("--model", "missing", *BRIEF)
    assert result.exit_code == 1
    assert "no such model" in result.stderr
    assert len(server.asked) == 1


def test_ctrl_c_reports_what_was_measured(server: Server, tmp_path: Path) -> None:
    server.script = Doubling()
    command = [sys.executable, "-m", "rowwise", "loadtest", server.url, "--model", "double", "--engine", "driver"]
    process = subprocess.Popen(
        # What a shell starts in the background is born deaf to SIGINT, tests and their children too.
        ["env", "--default-signal=INT", *command, "--duration", "120", "--warmup", "0", "--output", str(tmp_path)],
        cwd=Path(__file__).parents[3],
        env={**os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + 60
    while len(server.asked) < 100 and time.monotonic() < deadline_s:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["is_interrupted"]
    assert 0 < report["run"]["elapsed_s"] < 100
    assert report["run"]["figures"]["n_right"] > 50
    assert "Interrupted" in output
    assert "driver: 8 callers, closed loop" in errors, "not a terminal: plain lines"

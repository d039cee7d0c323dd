"""``rowwise show``, ``unload``, ``demo``, and the shell's completion of models' names."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rowwise.cli import app


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [*arguments], **options)


def test_show_tells_a_model_in_one_look(url: str) -> None:
    told = run("show", "double", "--url", url).stdout
    for part in ("AVAILABLE", "stable → 2", "float32 any shape", "118.0", "3 ops vectorized", "1 looped"):
        assert part in told
    whole = json.loads(run("show", "double", "--json", "--url", url).stdout)
    assert whole["inputs"] == {"x": {"dtype": "float32", "shape": None, "optional": False}}
    assert [(bucket["rows"], bucket["cost_s"]) for bucket in whole["buckets"]] == [(1, 12e-6), (8, 24e-6), (64, 118e-6)]
    assert (whole["active"], whole["version"], whole["labels"]) == (2, 2, {"stable": 2})
    assert [status["version"] for status in whole["versions"]] == [2]


def test_show_tells_of_a_model_that_was_never_built(url: str, server: Any) -> None:
    server.script = []
    answer = run("show", "ranker", "--url", url)
    assert answer.exit_code == 1  # the double knows no labels of it
    assert run("show", "nobody", "--url", url).exit_code == 1
    assert "rowwise models" in run("show", "nobody", "--url", url).stderr


def test_unload_asks_first(url: str, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = run("unload", "double", "--url", url)
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert server.requests == []

    monkeypatch.setattr("typer.confirm", lambda text, **_: text)
    assert run("unload", "double", "--yes", "--url", url).exit_code == 0
    assert server.paths() == ["POST /v2/repository/models/double/unload"]
    told = run("unload", "double", "--yes", "--json", "--url", url).stdout
    assert json.loads(told) == {"model": "double", "unloaded": True}


def completed(*words: str, **environment: str) -> list[str]:
    line = " ".join(["rowwise", *words])
    given = {"_ROWWISE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words)), **environment}
    answer = CliRunner().invoke(app, [], env=given, prog_name="rowwise")
    assert answer.exit_code == 0, answer.output
    return answer.stdout.split()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("ROWWISE_CONFIG", "ROWWISE_URL", "ROWWISE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "rowwise"


def test_the_shell_completes_the_names_of_the_servers_models(url: str, server: Any, home: Path) -> None:
    assert completed("predict", "dou", ROWWISE_URL=url) == ["double"]
    assert completed("show", "", ROWWISE_URL=url) == ["double", "ranker"]
    assert completed("certificate", "--url", url, "") == ["double", "ranker"]
    server.token = "secret"
    assert completed("predict", "", ROWWISE_URL=url) == []
    home.mkdir()
    (home / "config.toml").write_text(f'[client]\nurl = "{url}"\ntoken = "secret"\n')
    assert completed("predict", "ran") == ["ranker"]


def test_completion_is_silent_where_no_server_answers(home: Path) -> None:
    assert completed("predict", "", ROWWISE_URL="http://127.0.0.1:1") == []
    assert completed("mod") == ["models"]


def test_the_command_becomes_the_demonstration(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: became.append((program, arguments)))
    assert run("demo").exit_code == 0
    assert became == [(sys.executable, [sys.executable, "-m", "loadtests.demo"])]


def test_the_demonstration_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sklearn" else find(name))
    answer = run("demo")
    assert (answer.exit_code, "pip install 'rowwise[models]'" in answer.stderr) == (1, True)

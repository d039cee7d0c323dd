"""``rowwise config show``, and where the commands that talk to a server have theirs from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rowwise.cli import app
from server.settings import Settings
from server.settings_origins import unit_of

FILE = """queue_rows = 100
grace_s = 5.5
token = "server-secret"
otlp_endpoint = "http://user:pass@collector:4318/v1/traces"

[[tokens]]
name = "shop"
sha256 = "{digest}"
scopes = ["predict"]

[client]
url = "http://gpu1:8000"
token = "client-secret"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rowwise.toml"
    path.write_text(FILE.format(digest="0" * 64))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def run(*arguments: object, home: Path, **environment: str) -> Result:
    clean = dict.fromkeys(("ROWWISE_CONFIG", "ROWWISE_URL", "ROWWISE_TOKEN", "ROWWISE_CA"))
    given = {**clean, "XDG_CONFIG_HOME": str(home), "COLUMNS": "200", **environment}
    return CliRunner().invoke(app, [*map(str, arguments)], env=given)


def told(*arguments: object, home: Path, **environment: str) -> Any:
    answer = run("config", "show", "--json", *arguments, home=home, **environment)
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


def test_each_setting_says_where_it_came_from(file: Path, home: Path) -> None:
    found = told("--config", file, "--port", 9000, home=home, ROWWISE_GRACE_S="7")["server"]

    assert found["port"] == {"value": 9000, "unit": "", "from": "flag", "where": "--port"}
    assert found["grace_s"] == {"value": 7.0, "unit": "seconds", "from": "environment", "where": "ROWWISE_GRACE_S"}
    assert found["queue_rows"] == {"value": 100, "unit": "rows", "from": "file", "where": f"{file}:1"}
    assert found["host"] == {"value": "127.0.0.1", "unit": "", "from": "default", "where": ""}
    assert set(found) == set(Settings.model_fields)


def test_the_file_itself_comes_from_where_it_was_named(file: Path, home: Path) -> None:
    def origin(*arguments: object, **environment: str) -> str:
        answer = run(*arguments, "config", "show", "--json", home=home, **environment)
        found = json.loads(answer.stdout)["server"]
        assert found["queue_rows"]["where"] == f"{file}:1"
        where: str = found["config"]["where"]
        return where

    assert origin("--config", file) == "--config"
    assert origin(ROWWISE_CONFIG=str(file)) == "ROWWISE_CONFIG"


def test_no_secret_is_shown(file: Path, home: Path) -> None:
    for arguments in (["--json"], []):
        shown = run("config", "show", "--config", file, *arguments, home=home).output
        assert not [secret for secret in ("server-secret", "client-secret", "user:pass", "0" * 64) if secret in shown]
        assert "set, not shown" in shown
        assert "shop" in shown
    for arguments, environment in ((["--token", "seen"], {}), ([], {"ROWWISE_TOKEN": "seen"})):
        found = told(*arguments, home=home, **environment)
        assert "seen" not in json.dumps(found)
        assert found["client"]["token"]["from"] == ("flag" if arguments else "environment")


def test_a_bucket_is_said_to_come_from_where_its_url_came_from(home: Path) -> None:
    found = told("--store", "s3://models/team", home=home)["server"]
    assert (found["bucket"]["value"], found["bucket"]["where"]) == ("s3://models/team", "--store")
    assert found["store"]["from"] == "default"


def test_only_what_is_set_can_be_shown(home: Path) -> None:
    assert told("--only-set", "--port", 9000, home=home) == {
        "server": {"port": {"value": 9000, "unit": "", "from": "flag", "where": "--port"}},
        "client": {},
    }
    assert "all as by default" in run("config", "show", "--only-set", home=home).stdout


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("quue_rows = 5", "rowwise.toml:2"),
        ("quue_rows = 5", "did you mean 'queue_rows'"),
        ("queue_rows = 0", "rowwise.toml:2"),
        ("[client]\nurll = 'x'", "rowwise.toml:3"),
        ("[client]\nurl = 5", "rowwise.toml:3"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, home: Path, line: str, says: str) -> None:
    path = tmp_path / "rowwise.toml"
    path.write_text(f"# settings\n{line}\n")
    answer = run("config", "show", "--config", path, home=home)
    assert answer.exit_code == 2
    assert says in "".join(answer.stderr.replace("│", "").split("\n")).replace("  ", "")


def test_units_are_those_of_the_names() -> None:
    assert [unit_of(name) for name in ("follow_s", "default_timeout_ms", "max_body_bytes", "host")] == [
        "seconds",
        "milliseconds",
        "bytes",
        "",
    ]


def test_commands_go_to_the_server_of_the_users_file(url: str, home: Path, server: Any) -> None:
    server.token = "secret"
    own = home / "rowwise" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text(f'[client]\nurl = "{url}"\ntoken = "secret"\n')

    assert run("models", home=home).exit_code == 0
    assert run("models", home=home, ROWWISE_TOKEN="wrong").exit_code == 4
    assert run("models", "--token", "secret", home=home, ROWWISE_TOKEN="wrong").exit_code == 0
    assert told(home=home)["client"]["url"]["where"] == f"{own}:2"


def test_a_file_that_is_named_goes_before_the_users_own(url: str, home: Path, tmp_path: Path) -> None:
    own = home / "rowwise" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[client]\nurl = "http://127.0.0.1:1"\n')
    named = tmp_path / "named.toml"
    named.write_text(f'[client]\nurl = "{url}"\n')

    assert run("models", home=home).exit_code == 3
    assert run("--config", named, "models", home=home).exit_code == 0
    assert run("models", home=home, ROWWISE_CONFIG=str(named)).exit_code == 0
    assert run("--config", tmp_path / "absent.toml", "models", home=home).exit_code == 2


def test_a_wrong_file_of_the_user_does_not_keep_a_server_from_starting(home: Path) -> None:
    own = home / "rowwise" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[client]\nurl = 5\n")

    assert run("models", home=home).exit_code == 2
    assert run("version", home=home).exit_code == 0

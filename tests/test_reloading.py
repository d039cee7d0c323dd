"""SIGHUP: what can change while the server runs is read again; what can't be read changes nothing."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from server.reloading import Reloading
from server.rights import TokenEntry
from server.settings import CHANGEABLE, Settings
from server.supervise.told_settings import settings_from_json, settings_to_json


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rowwise.toml"
    path.write_text('queue_rows = 100\ngrace_s = 5.5\nlog_level = "warning"\nmodels = ["a=b:c", "d=e:f"]\n')
    return path


def test_flags_outrank_the_environment_which_outranks_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWWISE_GRACE_S", "7")
    monkeypatch.setenv("ROWWISE_QUEUE_ROWS", "8")
    settings = Settings.read({"config": file, "queue_rows": 9})
    assert (settings.queue_rows, settings.grace_s, settings.log_level) == (9, 7.0, "warning")
    assert settings.models == ("a=b:c", "d=e:f")
    assert settings.max_instances == 10_000


def test_the_environment_can_name_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWWISE_CONFIG", str(file))
    assert Settings.read({}).queue_rows == 100


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file or directory"),
        ("queue_rows = ", "can't be read"),
        ('config = "another.toml"', "name another file"),
        ("quue_rows = 5", "quue_rows"),
        ("queue_rows = 0", "queue_rows"),
        ('log_level = "loud"', "expected one of debug, info"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_at_the_start(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "rowwise.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=says):
        Settings.read({"config": path})


def test_a_hang_up_changes_what_can_change_and_names_the_rest(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    applied: list[Settings] = []
    reloading = Reloading(Settings.read({"config": file, "max_instances": 7}), applied.append)
    file.write_text('queue_rows = 200\nport = 9\ntoken = "new"\nmax_instances = 9\nhttp_workers = 3\n')
    with caplog.at_level(logging.INFO):
        reloading.reload()
    (settings,) = applied
    assert settings is reloading.settings
    assert settings.token is not None
    assert (settings.queue_rows, settings.token.get_secret_value(), settings.grace_s) == (200, "new", 30.0)
    assert settings.max_instances == 7  # a flag outranks the file
    assert (settings.port, settings.http_workers, settings.models) == (8000, 0, ("a=b:c", "d=e:f"))
    assert "SIGHUP: changed: grace_s, log_level, queue_rows, token" in caplog.text
    assert "these take a restart: http_workers, models, port" in caplog.text
    assert "new" not in caplog.text
    reloading.reload()
    assert len(applied) == 1


@pytest.mark.parametrize("text", ["queue_rows = ", "queue_rows = 0", 'token = ""', "unknown = 1", None])
def test_a_malformed_file_keeps_the_old_settings_and_the_log_says_why(
    file: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    applied: list[Settings] = []
    reloading = Reloading(Settings.read({"config": file}), applied.append)
    before = reloading.settings
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    reloading.reload()
    assert (applied, reloading.settings) == ([], before)
    assert "SIGHUP: the settings stay as they are: " in caplog.text


def test_what_can_change_are_settings() -> None:
    assert set(Settings.model_fields) > CHANGEABLE


TOKEN = {"name": "ci", "sha256": "0" * 64, "scopes": ["manage"], "models": ["a*"], "manage_per_s": 2.5}


def test_tokens_may_stand_in_the_file_and_in_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(
        '[[tokens]]\nname = "ci"\nsha256 = "'
        + "0" * 64
        + '"\nscopes = ["manage"]\nmodels = ["a*"]\nmanage_per_s = 2.5\n'
    )
    filed = Settings.read({"config": file})
    monkeypatch.setenv("ROWWISE_TOKENS", json.dumps([TOKEN]))
    given = Settings.read({})
    assert filed.tokens == given.tokens
    assert [entry.name for entry in filed.tokens] == ["ci"]


def test_processes_are_told_of_tokens_as_of_all_settings() -> None:
    settings = Settings(tokens=(TokenEntry.model_validate(TOKEN),), host_names=("a", "b"), tokens_file=Path("t"))
    told = settings_from_json(json.loads(json.dumps(settings_to_json(settings))))
    assert told == settings


def test_a_token_where_its_hash_belongs_is_not_in_the_log(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    reloading = Reloading(Settings.read({"config": file}), lambda _: None)
    file.write_text('[[tokens]]\nname = "ci"\nsha256 = "rowwise_secret"\nscopes = ["manage"]\n')
    reloading.reload()
    assert "tokens.0.sha256" in caplog.text
    assert "secret" not in caplog.text

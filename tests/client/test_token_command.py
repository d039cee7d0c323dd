"""``rowwise token``: the file that a server goes by."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from rowwise.cli.app import app
from server.rights import digest_of, is_token, read_tokens


def run(*arguments: str, file: Path) -> Result:
    return CliRunner().invoke(app, ["token", *arguments], env={"ROWWISE_TOKENS_FILE": str(file), "COLUMNS": "200"})


def test_a_token_is_printed_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    made = run(
        *("make", "shop", "--scope", "predict", "--scope", "read", "--model", "rank-*", "--model", "x[12]"),
        *("--predict-rows-per-s", "500", "--manage-burst", "3"),
        file=file,
    )
    token = made.output.strip()
    assert (made.exit_code, is_token(token)) == (0, True)
    (entry,) = read_tokens(file)
    assert entry.sha256 == digest_of(token.encode()).hex()
    assert (entry.name, entry.scopes, entry.models) == ("shop", ("predict", "read"), ("rank-*", "x[12]"))
    assert (entry.predict_rows_per_s, entry.manage_burst) == (500.0, 3.0)
    listed = run("list", file=file).output
    assert all(part in listed for part in ("shop", "predict, read", "rank-*, x[12]", "500"))
    assert token not in listed + file.read_text()
    assert [each["name"] for each in json.loads(run("list", "--json", file=file).output)] == ["shop"]
    assert run("revoke", "shop", file=file).output == "shop: revoked\n"
    assert read_tokens(file) == ()


def test_a_token_may_be_for_a_time_and_the_list_says_what_is_left_of_it(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    assert run("make", "shop", "--scope", "read", "--expires", "30d", file=file).exit_code == 0
    assert run("make", "ci", "--scope", "read", "--expires", "9999-01-31", file=file).exit_code == 0
    listed = run("list", file=file).output
    assert "(in 29 days)" in listed
    assert "9999-01-31 00:00 UTC" in listed
    assert json.loads(run("list", "--json", file=file).output)[1]["expires"] == "9999-01-31T00:00:00Z"
    file.write_text(file.read_text().replace("9999-01-31", "2020-01-31"))
    assert "(EXPIRED)" in run("list", file=file).output
    for wrong in ("soon", "2020-01-31", "0d"):
        assert run("make", "x", "--scope", "read", "--expires", wrong, file=file).exit_code == 2


def test_what_can_not_be_done_is_said(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    for arguments, code, says in (
        (("list",), 1, "No such file"),
        (("revoke", "shop"), 1, "No such file"),
        (("make", "shop", "--scope", "root"), 2, "'predict', 'read' or 'manage'"),
        (("make", "../shop", "--scope", "read"), 2, "pattern"),
        (("make", "shop"), 2, "--scope"),
    ):
        failed = run(*arguments, file=file)
        assert failed.exit_code == code
        assert says in " ".join(failed.output.replace("│", " ").split())
    assert not file.exists()
    assert run("make", "shop", "--scope", "read", file=file).exit_code == 0
    again = run("make", "shop", "--scope", "read", file=file)
    assert (again.exit_code, "already" in again.output) == (1, True)

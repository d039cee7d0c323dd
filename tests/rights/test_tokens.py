"""Tokens and the file that keeps their hashes."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from server.rights import TokenEntry, add_token, digest_of, is_token, new_token, read_tokens, revoke_token


def entry(name: str, token: str = "", **more: object) -> TokenEntry:
    digest = digest_of((token or name).encode()).hex()
    return TokenEntry.model_validate({"name": name, "sha256": digest, "scopes": ["predict"], **more})


def test_a_token_is_recognized_by_its_form_and_its_checksum() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(is_token(token) and token.startswith("rowwise_") and len(token) == 46 for token in tokens)
    token = new_token()
    mistyped = token[:10] + ("a" if token[10] != "a" else "b") + token[11:]
    assert not is_token(mistyped)
    assert not any(map(is_token, ("", token[:-1], token + "a", token.upper(), "x" + token[1:])))


def test_what_is_added_can_be_read_and_taken_out_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("# ours\n\n[[tokens]]  # by hand\n" + f'name = "old"\nsha256 = "{"0" * 64}"\nscopes = ["read"]\n')
    add_token(path, entry("shop", models=("rank-*", "tëst[1]"), predict_rows_per_s=2.5))
    add_token(path, entry("ci", scopes=("manage",)))
    assert [each.name for each in read_tokens(path)] == ["old", "shop", "ci"]
    assert read_tokens(path)[1] == entry("shop", models=("rank-*", "tëst[1]"), predict_rows_per_s=2.5)
    revoke_token(path, "shop")
    assert [each.name for each in read_tokens(path)] == ["old", "ci"]
    assert path.read_text().startswith("# ours\n\n[[tokens]]  # by hand\n")
    for name in ("old", "ci"):
        revoke_token(path, name)
    assert read_tokens(path) == ()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["tokens.toml"]


def test_a_new_file_is_not_for_everybody_and_holds_no_token(tmp_path: Path) -> None:
    path, token = tmp_path / "tokens.toml", new_token()
    add_token(path, entry("shop", token))
    assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0
    assert token not in path.read_text()
    assert tomllib.loads(path.read_text())["tokens"][0]["sha256"] == digest_of(token.encode()).hex()


def test_a_name_is_given_once_and_revoked_only_if_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    add_token(path, entry("shop"))
    with pytest.raises(ValueError, match="has a token 'shop' already"):
        add_token(path, entry("shop", "another"))
    with pytest.raises(ValueError, match="has no token 'cart'; it has shop"):
        revoke_token(path, "cart")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tokens = ", "are no TOML"),
        ("queue_rows = 5", "must be"),
        ("[tokens]\nname = 'a'", "must be"),
        ("[[tokens]]\nname = 'a'\nscopes = ['read']", "token 'a': sha256: Field required"),
        ("[[tokens]]\nname = 'a'\nscopes = ['root']\nsha256 = '{digest}'", "token 'a': scopes.0"),
        ("[[tokens]]\nname = '../a'\nscopes = ['read']\nsha256 = '{digest}'", "name"),
        ("[[tokens]]\nname = 'a'\nscopes = []\nsha256 = '{digest}'", "scopes"),
        ("[[tokens]]\nname = 'a'\nscopes = ['read']\nsha256 = '{digest}'\nmodel = 'x'", "model"),
        ("[[tokens]]\nname = 'a'\nscopes = ['read']\nsha256 = '{digest}'\n" * 2, "two have the same name"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text.replace("{digest}", "0" * 64))
    with pytest.raises(ValueError, match=says):
        read_tokens(path)


def test_a_token_that_stands_where_its_hash_belongs_is_not_repeated_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("[[tokens]]\nname = 'a'\nscopes = ['read']\nsha256 = 'rowwise_secret'")
    with pytest.raises(ValueError, match="sha256") as caught:
        read_tokens(path)
    assert "secret" not in str(caught.value)


def test_a_file_that_everybody_can_write_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    add_token(path, entry("shop"))
    path.chmod(0o666)
    with pytest.raises(ValueError, match="chmod o-w"):
        read_tokens(path)

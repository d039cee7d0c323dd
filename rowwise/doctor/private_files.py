"""Files with secrets in them: who else on this machine can read or change them."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

from rowwise.doctor.finding import Finding, advice, fine, wrong
from server.rights import read_tokens
from server.settings import Settings

__all__ = ["private_files_findings"]


def private_files_findings(settings: Settings) -> Iterator[Finding]:
    """Yield what is wrong with the tokens file, the settings' file and the key of TLS."""
    if settings.tokens_file is not None:
        yield from _tokens_file(settings.tokens_file)
    if settings.config is not None and _has_secret(settings.config):
        yield from _secret("settings", settings.config, "it has a token in it: who reads it may do everything")
    if settings.tls_key is not None:
        yield from _secret("tls", settings.tls_key, "who reads the key can be taken for this server")


def _tokens_file(path: Path) -> Iterator[Finding]:
    try:
        entries = read_tokens(path)
    except ValueError as error:
        yield wrong(
            "tokens",
            str(error),
            why="the server does not go by it: it does not start, or keeps the tokens that it had",
            to_do=f"rowwise token list --file {path} says the same until it is right",
        )
        return
    if _mode(path) & stat.S_IROTH:
        yield advice(
            "tokens",
            f"every user of this machine can read {path}",
            why="it has hashes, no tokens, but names who may do what",
            to_do=f"chmod o-r {path}",
        )
    else:
        yield fine("tokens", f"{path}: {len(entries)} tokens")


def _secret(check: str, path: Path, why: str) -> Iterator[Finding]:
    mode = _mode(path)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        doing = "change" if mode & stat.S_IWOTH else "read"
        what = f"every user of this machine can {doing} {path}"
        yield wrong(check, what, why=why, to_do=f"chmod o-rwx {path}")


def _has_secret(path: Path) -> bool:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    client = values.get("client")
    return "token" in values or (isinstance(client, dict) and "token" in client)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return 0

"""The tokens file: TOML with a table for each token, which people may edit and the ``rowwise token`` command does.

The file holds no token, so who reads it can do nothing with it; who writes to it can make himself one. A command's
changes leave all other lines as they are, and are there whole or not at all.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from server.rights.entry import TokenEntry

__all__ = ["add_token", "read_tokens", "revoke_token"]

#: Where a token's table begins.
_TABLE = re.compile(r"^(?=[ \t]*\[\[[ \t]*tokens[ \t]*\]\])", re.MULTILINE)
_MAX_BYTES = 2**22


def read_tokens(path: Path) -> tuple[TokenEntry, ...]:
    """Return the file's entries. Errors: ValueError with a sentence that names the file, and no part of its text."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"the tokens in {str(path)!r} can't be read: {error.strerror or error}") from None
    if mode & stat.S_IWOTH:
        raise ValueError(f"the tokens in {str(path)!r} can be changed by every user of this machine: chmod o-w it")
    if len(text) > _MAX_BYTES:
        raise ValueError(f"the tokens in {str(path)!r} are over {_MAX_BYTES} bytes")
    return _parse(text, path)


def add_token(path: Path, entry: TokenEntry) -> None:
    """Add an entry; the file is made if there is none. Errors: ValueError for a name that is there; OSError."""
    with _changing(path):
        known = read_tokens(path) if path.exists() else ()
        if any(each.name == entry.name for each in known):
            raise ValueError(f"{str(path)!r} has a token {entry.name!r} already: revoke it first, or take another name")
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        gap = "" if not before or before.endswith("\n\n") else "\n" if before.endswith("\n") else "\n\n"
        _replace(path, before + gap + _written(entry))


def revoke_token(path: Path, name: str) -> None:
    """Take an entry out. Errors: ValueError for a name that is not there; OSError."""
    with _changing(path):
        known = [entry.name for entry in read_tokens(path)]
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ValueError(f"{str(path)!r} has no token {name!r}; {has}")
        first, *tables = _TABLE.split(path.read_text(encoding="utf-8"))
        kept = [table for table in tables if _name_in(table) != name]
        if len(kept) != len(tables) - 1:
            raise ValueError(f"{str(path)!r} is not written as [[tokens]] tables: take the token out by hand")
        _replace(path, first + "".join(kept))


def _parse(text: bytes, path: Path) -> tuple[TokenEntry, ...]:
    try:
        values = tomllib.loads(text.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"the tokens in {str(path)!r} are no TOML: {error}") from None
    unknown = values.keys() - {"tokens"}
    tables = values.get("tokens", [])
    if unknown or not isinstance(tables, list):
        raise ValueError(f"the tokens in {str(path)!r} must be [[tokens]] tables, and nothing else")
    entries = tuple(_entry(table, number, path) for number, table in enumerate(tables, 1))
    for what in ("name", "sha256"):
        values_of = [getattr(entry, what) for entry in entries]
        if len(set(values_of)) < len(values_of):
            raise ValueError(f"the tokens in {str(path)!r}: two have the same {what}")
    return entries


def _entry(table: object, number: int, path: Path) -> TokenEntry:
    try:
        return TokenEntry.model_validate(table)
    except ValidationError as error:
        name = table.get("name") if isinstance(table, Mapping) else None
        # Without what was found: it may be a token that somebody wrote where its digest belongs.
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        told = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
        which = repr(name[:64]) if isinstance(name, str) else f"number {number}"
        raise ValueError(f"the tokens in {str(path)!r}: token {which}: {told}") from None


def _written(entry: TokenEntry) -> str:
    # JSON's strings, numbers and lists are TOML's too; TOML has times besides.
    values = entry.model_dump(mode="json", exclude_none=True)
    lines = (f"{key} = {value if key == 'expires' else json.dumps(value)}\n" for key, value in values.items())
    return "[[tokens]]\n" + "".join(lines)


def _name_in(table: str) -> object:
    (found,) = tomllib.loads(table)["tokens"]
    return found.get("name")


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.new")
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o640
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """Let one command at a time change the files of a directory."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)

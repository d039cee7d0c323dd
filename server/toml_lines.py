"""Where in a TOML file something stands: its parser does not say."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any

__all__ = ["line_of"]


def line_of(text: str, *keys: str) -> int | None:
    """Return the line, from 1, on which a key's statement begins, ``keys`` leading to it; None if it is not found.

    A statement begins where all before it parses, and ends where the text parses again. So what only looks like the
    key, as a line of a multi-line string does, is not taken for it.
    """
    lines = text.splitlines()
    mention = re.compile(rf"[\"']?{re.escape(keys[-1])}[\"']?\s*[=.\]]")
    return next(
        (index + 1 for index, line in enumerate(lines) if mention.search(line) and _makes(lines, index, keys)), None
    )


def _makes(lines: Sequence[str], index: int, keys: Sequence[str]) -> bool:
    before = _parsed(lines[:index])
    if before is None or _has(before, keys):
        return False
    for end in range(index + 1, len(lines) + 1):
        after = _parsed(lines[:end])
        if after is not None:
            return _has(after, keys)
    return False


def _parsed(lines: Sequence[str]) -> dict[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None


def _has(found: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if isinstance(found, list):
            found = found[0] if found else {}
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True

"""Where each setting came from: a flag, the environment, a line of the file, or its default."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource

from server.settings import Settings
from server.toml_lines import line_of

__all__ = ["Origin", "fault_of", "origins", "unit_of"]

_UNITS = {"_s": "seconds", "_ms": "milliseconds", "_bytes": "bytes"}
_OTHER_UNITS = {
    "batch_limit": "rows",
    "queue_rows": "rows",
    "max_instances": "examples",
    "max_connections": "connections",
    "max_versions": "versions",
    "keep_versions": "versions",
    "concurrent_builds": "builds",
    "engines": "threads",
    "http_workers": "processes",
    "trace_share": "share, 0 to 1",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """``where`` completes it: the flag, the variable, FILE:LINE; empty for a default."""

    kind: Literal["default", "file", "environment", "flag"]
    where: str = ""

    def __str__(self) -> str:
        """Return it as people read it."""
        return self.where or self.kind


def unit_of(name: str) -> str:
    """Return the unit of a setting, empty where it has none."""
    return _OTHER_UNITS.get(name) or next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")


def origins(given: Mapping[str, Any]) -> dict[str, Origin]:
    """Return where every setting comes from, under the flags that were given, whether their values are right or not."""
    environment = EnvSettingsSource(Settings)()
    path = given.get("config", environment.get("config"))
    text = _text(path)
    found = {name: _origin(name, given, environment, path, text) for name in Settings.model_fields}
    if found["bucket"].kind == "default" and _is_url(given, environment, text):
        # The URL of a bucket is taken for the bucket, whichever of the two names it came by.
        found["bucket"], found["store"] = found["store"], Origin("default")
    return found


def fault_of(error: ValidationError, given: Mapping[str, Any]) -> tuple[str, str]:
    """Return where the first wrong setting came from, and the sentence about it; a secret's value is left out."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    flag = f"--{name.replace('_', '-')}"
    usual = f"{flag} / ROWWISE_{name.upper()}"
    if name not in Settings.model_fields:
        environment = EnvSettingsSource(Settings)()
        path = given.get("config", environment.get("config"))
        line = line_of(_text(path), name)
        return (f"{path}:{line}" if line else "settings"), f"there is no setting {name!r}{_meant(name)}"
    origin = origins(given)[name]
    place = f"{origin.where} ({usual})" if origin.kind == "file" else usual
    shown = "" if name in {"token", "tokens"} else f", got {first['input']!r}"
    return place, f"{first['msg']}{shown}"


def _origin(name: str, given: Mapping[str, Any], environment: Mapping[str, Any], path: object, text: str) -> Origin:
    if name in given:
        return Origin("flag", f"--{name.replace('_', '-')}")
    if name in environment:
        return Origin("environment", f"ROWWISE_{name.upper()}")
    line = line_of(text, name)
    return Origin("file", f"{path}:{line}") if line else Origin("default")


def _text(path: object) -> str:
    try:
        return "" if path is None else Path(str(path)).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _is_url(given: Mapping[str, Any], environment: Mapping[str, Any], text: str) -> bool:
    try:
        file = tomllib.loads(text)
    except ValueError:
        file = {}
    store = given.get("store", environment.get("store", file.get("store", "")))
    return str(store).startswith("s3://")


def _meant(name: str) -> str:
    close = difflib.get_close_matches(name, Settings.model_fields, n=1)
    return f"; did you mean {close[0]!r}?" if close else "; `rowwise config show` lists all"

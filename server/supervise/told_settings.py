"""Settings on their way from the supervisor to its children: with their orders, and again when they have changed.

Only the supervisor reads file and environment: so all of its processes go by the same settings, those too that are
started later. What has changed lies in a file of the private directory; SIGHUP tells a child to read it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from server.settings import Settings

__all__ = ["read_settings", "settings_from_json", "settings_to_json", "write_settings"]


def settings_to_json(settings: Settings) -> dict[str, Any]:
    """Return all settings as values of JSON, the token among them."""
    value = settings.model_dump(mode="json")
    if settings.token is not None:
        value["token"] = settings.token.get_secret_value()
    return value


def settings_from_json(value: Mapping[str, Any]) -> Settings:
    """Return the settings that ``settings_to_json`` was given."""
    return Settings(**value)


def write_settings(settings: Settings, path: Path) -> None:
    """Write them where ``read_settings`` finds them, whole at any moment. Errors: OSError."""
    new = path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump(settings_to_json(settings), file)
    new.replace(path)


def read_settings(path: Path) -> Settings:
    """Return what was written last. Errors: ValueError, with a sentence."""
    try:
        return settings_from_json(json.loads(path.read_text()))
    except OSError as error:
        raise ValueError(f"the supervisor has passed on none: {error.strerror or error}") from None

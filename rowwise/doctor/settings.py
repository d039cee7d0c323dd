"""The settings: the flags, the environment and the file, read as the server reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from rowwise.doctor.finding import Finding, fine, wrong
from server.settings import Settings
from server.settings_origins import fault_of

__all__ = ["read_settings"]


def read_settings(given: Mapping[str, Any]) -> tuple[Settings, Finding]:
    """Return what the server would go by, and what is wrong with it; the defaults where something is."""
    try:
        settings = Settings.read(given)
    except ValidationError as error:
        place, sentence = fault_of(error, given)
        return _defaults(), _wrong(f"{place}: {sentence}")
    except ValueError as error:
        return _defaults(), _wrong(str(error))
    return settings, fine("settings", f"from {settings.config}" if settings.config else "no file of settings")


def _wrong(what: str) -> Finding:
    return wrong(
        "settings",
        what,
        why="the server does not start with it; the other checks here go by the defaults",
        to_do="correct it there; `rowwise config show` says where every setting comes from",
    )


def _defaults() -> Settings:
    return Settings.model_construct()

"""SIGHUP: settings that can change while the server runs are read again, the others are named."""

from __future__ import annotations

import logging
from collections.abc import Callable

from server.settings import CHANGEABLE, Settings

__all__ = ["Reloading"]

_log = logging.getLogger("rowwise")


class Reloading:
    """The settings in force. ``apply`` is called with them after they have changed."""

    def __init__(self, settings: Settings, apply: Callable[[Settings], None]) -> None:
        self.settings = settings
        self._apply = apply

    def reload(self) -> None:
        """Read the settings again; those that can't be used leave everything as it was, and the log says why."""
        try:
            found = self.settings.reread()
        except ValueError as error:
            _log.error("SIGHUP: the settings stay as they are: %s", error)
            return
        changed = {name for name in Settings.model_fields if getattr(found, name) != getattr(self.settings, name)}
        later = sorted(changed - CHANGEABLE)
        now = sorted(changed & CHANGEABLE)
        if now:
            self.settings = self.settings.model_copy(update={name: getattr(found, name) for name in now})
            self._apply(self.settings)
        _log.info("SIGHUP: changed: %s", ", ".join(now) or "nothing")
        if later:
            _log.warning("SIGHUP: these take a restart: %s", ", ".join(later))

"""SIGHUP: settings that can change while the server runs are read again, the others are named.

Of a server of several processes the supervisor reads them, and passes on what has changed (``supervise``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from server.settings import CHANGEABLE, Settings

__all__ = ["Reloading", "keep_looking"]

_log = logging.getLogger("rowwise")

#: Seconds between two looks at files that change without a signal.
_LOOK_S = 1.0


class Reloading:
    """The settings in force. ``apply`` is called with them after they have changed.

    ``read`` reads them; from file and environment, if it is left out. Errors: ValueError, with a sentence.
    ``renew`` is called each time: files that settings name may have changed.
    """

    def __init__(
        self,
        settings: Settings,
        apply: Callable[[Settings], None],
        *,
        read: Callable[[], Settings] | None = None,
        renew: Callable[[], None] | None = None,
    ) -> None:
        self.settings = settings
        self._apply = apply
        self._renew = renew
        self._read = settings.reread if read is None else read

    def catch_up(self, path: Path) -> None:
        """Do the same if there is a file of changes: it may have been written before anybody listened."""
        if path.exists():
            self.reload()

    def reload(self) -> None:
        """Read the settings again; those that can't be used leave everything as it was, and the log says why."""
        if self._renew is not None:
            self._renew()
        try:
            found = self._read()
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


def keep_looking(look: Callable[[], None]) -> None:
    """Call ``look`` every second, on the running event loop, as long as that runs."""
    loop = asyncio.get_running_loop()

    def again() -> None:
        try:
            look()
        except Exception:  # noqa: BLE001 - the next one may go well
            _log.exception("files could not be looked at")
        loop.call_later(_LOOK_S, again)

    again()

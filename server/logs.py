"""Where the log goes, and what a line of it looks like."""

from __future__ import annotations

import logging

from server.tensorflow_notices import open_stderr

__all__ = ["change_level", "log_to_stderr"]

#: uvicorn gives each of these a level of its own.
_UVICORN = ("uvicorn.error", "uvicorn.access", "uvicorn.asgi")


def log_to_stderr(level: str, process: str = "") -> None:
    """Log to standard error from now on; ``process`` names this one where there are several."""
    name = f"{process}: " if process else ""
    logging.basicConfig(
        level=level.upper(), format=f"%(asctime)s %(levelname)-7s {name}%(message)s", stream=open_stderr()
    )


def change_level(level: str) -> None:
    """Log from this level on, from now on."""
    for name in ("", *_UVICORN):
        logging.getLogger(name or None).setLevel(level.upper())

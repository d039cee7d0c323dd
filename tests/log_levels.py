"""From which level on the server's loggers, and all others, log in this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from server import logs


def log_levels() -> dict[str, int]:
    """Return the level of the root logger, named ``""``, and of each of ours."""
    return {name: logging.getLogger(name or None).level for name in ("", *logs._OURS)}


@contextmanager
def log_levels_put_back() -> Iterator[None]:
    """Put back what is changed meanwhile: a server in this process decides what all of it logs."""
    before = log_levels()
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name or None).setLevel(level)

"""What the load tests print on: a terminal as wide as it is, a file or a pipe wide enough for every table."""

from __future__ import annotations

from rich.console import Console

__all__ = ["terminal"]

_FILE_COLUMNS = 140


def terminal() -> Console:
    """Return where tables and progress go. Of a file nobody knows how wide it is; rich takes it for 80 columns."""
    console = Console()
    return console if console.is_terminal else Console(width=_FILE_COLUMNS)

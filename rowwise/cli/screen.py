"""What commands print tables on."""

from __future__ import annotations

from rich.console import Console

__all__ = ["screen"]

#: What rich takes a file or a pipe for, where COLUMNS does not say otherwise.
_UNKNOWN_COLUMNS = 80
_FILE_COLUMNS = 200


def screen() -> Console:
    """Return a terminal as wide as it is; a file or a pipe so wide that grep finds whole lines."""
    console = Console()
    is_told = console.is_terminal or console.width != _UNKNOWN_COLUMNS
    return console if is_told else Console(width=_FILE_COLUMNS)

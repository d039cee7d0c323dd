"""With what a command ends, and how it says why."""

from __future__ import annotations

from enum import IntEnum
from typing import Self

import typer

from rowwise.errors import NotConnected, Overloaded, RowwiseClientError, TimedOut, Unauthorized

__all__ = ["ExitCode", "exit_code_of", "failed"]


class ExitCode(IntEnum):
    """The exit codes of all commands. ``meaning`` is what the help and the manual say of each."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Make a code that knows what it means."""
        made = int.__new__(cls, code)
        made._value_ = code
        made.meaning = meaning
        return made

    DONE = 0, "done"
    FAILED = 1, "failed, with the reason on standard error"
    USAGE = 2, "the command line, the environment or a file of settings is wrong"
    UNREACHABLE = 3, "no server can be reached at that URL"
    NOT_ALLOWED = 4, "the token is missing, wrong, or does not allow it"
    LATER = 5, "not now: overloaded, not ready, or no answer in time"
    INTERRUPTED = 130, "interrupted by Ctrl-C"


#: The first that fits.
_CODES: tuple[tuple[type[RowwiseClientError], ExitCode], ...] = (
    (NotConnected, ExitCode.UNREACHABLE),
    (Unauthorized, ExitCode.NOT_ALLOWED),
    (Overloaded, ExitCode.LATER),
    (TimedOut, ExitCode.LATER),
)


def exit_code_of(error: RowwiseClientError) -> ExitCode:
    """Return with what a command ends that the client could not do its work for."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)


def failed(sentence: str, code: ExitCode = ExitCode.FAILED) -> typer.Exit:
    """Write the reason to standard error and return what is to be raised."""
    typer.echo(f"error: {sentence}", err=True)
    return typer.Exit(code)

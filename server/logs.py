"""Where the log goes, and what a line of it looks like: text for people, or JSON for machines.

No line holds what a caller sent. Our own messages name no values, and of exceptions a log has the class and where they
were raised, but not their own words, which may quote an input: ``could not convert string to float: '...'``. Only what
the operating system says of a file or a socket is kept. Libraries that log what passes through them when they are
told to (hpack writes every header, tokens too) are never told to.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, TypeAlias

from server.tensorflow_notices import open_stderr

__all__ = ["LogFormat", "change_level", "log_to_stderr"]

LogFormat: TypeAlias = Literal["text", "json"]

#: The loggers of this server. uvicorn gives each of its own a level of its own.
_OURS = ("rowwise", "server", "vectorizer", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")
#: What a record may carry besides its message: fields of a JSON line.
_FIELDS = ("request_id", "method", "path", "status", "duration_ms")
_ExceptionFacts: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def log_to_stderr(level: str, process: str = "", *, log_format: LogFormat = "text") -> None:
    """Log to standard error from now on; ``process`` names this one where there are several."""
    handler = logging.StreamHandler(open_stderr())
    handler.setFormatter(_Text(process) if log_format == "text" else _Json(process))
    logging.basicConfig(handlers=[handler])
    change_level(level)


def change_level(level: str) -> None:
    """Log from this level on, from now on; of other people's libraries what they inform of, at most."""
    number = logging.getLevelNamesMapping()[level.upper()]
    for name in _OURS:
        logging.getLogger(name).setLevel(number)
    logging.getLogger().setLevel(max(number, logging.INFO))


class _Text(logging.Formatter):
    """Time, level, process, message; a traceback on the lines after it."""

    def __init__(self, process: str) -> None:
        name = f"{process}: ".replace("%", "%%") if process else ""
        super().__init__(f"%(asctime)s %(levelname)-7s {name}%(message)s")

    def formatException(self, ei: _ExceptionFacts) -> str:  # noqa: N802 - the base class names it so
        return "" if ei[1] is None else "\n".join(_lines_of(ei[1]))


class _Json(logging.Formatter):
    """One object a line: ``at`` (UTC), ``level``, ``logger``, ``message``, and what else is known."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._process:
            told["process"] = self._process
        told |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info and record.exc_info[1] is not None:
            told["error"] = _class_of(record.exc_info[1])
            told["traceback"] = "\n".join(_lines_of(record.exc_info[1]))
        return json.dumps(told)


def _lines_of(error: BaseException) -> Iterator[str]:
    """Yield where an exception was raised, after what it came from, and what it is; nothing of what it says."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield from _lines_of(cause)
        yield "which led to:"
    yield "Traceback (most recent call last):"
    yield from (line.rstrip("\n") for line in traceback.format_tb(error.__traceback__))
    said = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
    yield f"{_class_of(error)}{said}"
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _lines_of(one)


def _class_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"

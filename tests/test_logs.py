"""Lines of the log: text or JSON, with ids, and without anything that an exception quotes."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator

import pytest

from server import logs
from server.settings import Settings
from tests.log_levels import log_levels_put_back

MARKER = "marker-of-an-input"


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., io.StringIO]]:
    """Return what begins to log into a string, on loggers that are put back as they were."""
    root = logging.getLogger()
    before = root.handlers[:]
    written = io.StringIO()
    monkeypatch.setattr(logs, "open_stderr", lambda: written)

    def begin(level: str, process: str = "", log_format: logs.LogFormat = "text") -> io.StringIO:
        root.handlers[:] = []
        logs.log_to_stderr(level, process, log_format=log_format)
        return written

    with log_levels_put_back():
        yield begin
    root.handlers[:] = before


def fail(log: logging.Logger) -> None:
    """Log an exception that quotes an input, from another that does, as tracebacks have them."""
    try:
        try:
            float(MARKER)
        except ValueError as error:
            raise RuntimeError(f"what came was {MARKER!r}") from error
    except RuntimeError:
        log.exception("request %s failed", "id-1", extra={"request_id": "id-1"})


def test_text_has_time_level_process_and_message(start: Callable[..., io.StringIO]) -> None:
    written = start("info", "worker 100%")
    logging.getLogger("rowwise").info("it %s", "runs")
    assert written.getvalue().endswith(" INFO    worker 100%: it runs\n")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_says_what_was_raised_and_where_and_nothing_that_it_quotes(
    start: Callable[..., io.StringIO], log_format: logs.LogFormat
) -> None:
    written = start("debug", log_format=log_format)
    fail(logging.getLogger("rowwise.web"))
    text = written.getvalue()
    assert MARKER not in text
    assert "id-1" in text
    assert text.index("\nValueError" if log_format == "text" else "\\nValueError") < text.index("which led to:")
    assert text.rstrip('"}\n').endswith("RuntimeError")
    assert "in fail" in text
    assert "test_logs.py" in text


def test_json_is_one_object_a_line_whatever_the_message(start: Callable[..., io.StringIO]) -> None:
    written = start("info", "engine", "json")
    logging.getLogger("server.x").warning("two\nlines of %r", 'a "name"')
    fail(logging.getLogger("rowwise.web"))
    first, second = map(json.loads, written.getvalue().splitlines())
    assert first.keys() == {"at", "level", "logger", "message", "process"}
    assert (first["level"], first["logger"], first["process"]) == ("warning", "server.x", "engine")
    assert first["message"] == "two\nlines of 'a \"name\"'"
    assert first["at"].endswith("Z")
    assert second["request_id"] == "id-1"
    assert second["error"] == "RuntimeError"
    assert "Traceback" in second["traceback"]


def test_what_the_system_says_of_a_file_is_kept(start: Callable[..., io.StringIO]) -> None:
    written = start("info")
    try:
        raise OSError(28, "No space left on device", "/some/where")
    except OSError:
        logging.getLogger("rowwise").exception("it can't be written")
    assert written.getvalue().endswith("OSError: No space left on device\n")


def test_each_exception_of_a_group_is_told(start: Callable[..., io.StringIO]) -> None:
    written = start("info")
    try:
        raise ExceptionGroup("of two", [KeyError(MARKER), TypeError("no")])
    except ExceptionGroup:
        logging.getLogger("rowwise").exception("several")
    assert "KeyError" in written.getvalue()
    assert "TypeError" in written.getvalue()
    assert MARKER not in written.getvalue()


def test_libraries_never_log_below_information(start: Callable[..., io.StringIO]) -> None:
    written = start("debug")
    logging.getLogger("hpack.hpack").debug("Decoded authorization: %s", MARKER)
    logging.getLogger("asyncio").debug("%s", MARKER)
    logging.getLogger("server.store").debug("ours")
    assert MARKER not in written.getvalue()
    assert "ours" in written.getvalue()
    logs.change_level("error")
    logging.getLogger("hpack.hpack").warning("not that")
    logging.getLogger("rowwise").warning("nor that")
    assert "that" not in written.getvalue()


def test_the_form_is_a_setting() -> None:
    assert Settings().log_format == "text"
    assert Settings(log_format="json").log_format == "json"
    with pytest.raises(ValueError, match="log_format"):
        Settings(log_format="xml")  # type: ignore[arg-type]


def test_exceptions_without_words_of_their_own_are_told_too(start: Callable[..., io.StringIO]) -> None:
    written = start("info", log_format="json")
    logging.getLogger("rowwise").error("here", exc_info=sys.exc_info())
    assert "error" not in json.loads(written.getvalue())

"""The table from errors to status codes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import server
from server.errors import RowwiseError
from server.web.status import STATUS, error_reply, status_of

ROOT = Path(server.__file__ or "").parent if server.__file__ else Path(next(iter(server.__path__)))


def error_classes() -> set[type[RowwiseError]]:
    """Every error class that an ``errors`` module of the server defines."""
    found: set[type[RowwiseError]] = set()
    for path in sorted(ROOT.rglob("errors.py")):
        name = ".".join(("server", *path.relative_to(ROOT).with_suffix("").parts))
        module = importlib.import_module(name)
        found |= {
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, RowwiseError) and value.__module__ == name
        }
    return found


def test_every_error_class_has_a_status_code() -> None:
    missing = sorted(kind.__qualname__ for kind in error_classes() - STATUS.keys())
    assert missing == [], "give them a code in server/web/status.py"
    assert len(error_classes()) > 40


def test_codes_are_those_that_the_protocol_names() -> None:
    known = {400, 401, 403, 404, 405, 408, 409, 413, 414, 415, 429, 431, 499, 500, 501, 503, 504, 505, 507}
    assert set(STATUS.values()) <= known


def test_a_class_that_is_not_in_the_table_takes_its_base() -> None:
    for kind in (RowwiseError, *STATUS):
        derived = type("Derived", (kind,), {"__init__": Exception.__init__})
        assert status_of(derived("x")) == STATUS[kind]


@pytest.mark.parametrize("text", ["plain", "é", "\ud800", 'quo"te\n'])
def test_any_sentence_becomes_a_body(text: str) -> None:
    assert error_reply(RowwiseError(text)).body.decode("ascii").startswith('{"error": "')

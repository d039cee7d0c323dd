from __future__ import annotations

import re

import pytest

import rowwise.errors
from rowwise.errors import DeadlineExceeded, Overloaded, RowwiseClientError, ServerRefused, TimedOut, refusal


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (302, "ServerRefused"),
        (400, "InvalidRequest"),
        (401, "Unauthorized"),
        (403, "Unauthorized"),
        (404, "NotFound"),
        (405, "InvalidRequest"),
        (409, "Conflict"),
        (413, "TooLarge"),
        (418, "ServerRefused"),
        (429, "Overloaded"),
        (500, "ServerFailed"),
        (501, "Unsupported"),
        (503, "Overloaded"),
        (504, "DeadlineExceeded"),
    ],
)
def test_a_status_has_its_class(status, name):
    error = refusal(status, "a sentence")

    assert type(error).__name__ == name
    assert isinstance(error, ServerRefused)
    assert (error.status, error.message, str(error)) == (status, "a sentence", "a sentence")


def test_a_deadline_that_the_server_kept_is_also_a_timeout():
    assert issubclass(DeadlineExceeded, TimedOut)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("2", 2.0), ("0", 0.0), ("soon", None), ("-1", None), ("nan", None), ("inf", None)],
)
def test_retry_after_is_read_as_seconds_or_not_at_all(header, seconds):
    error = refusal(503, "draining", retry_after=header)

    assert isinstance(error, Overloaded)
    assert error.retry_after_s == seconds


def test_the_tree_in_the_docstring_is_the_tree_in_the_code():
    drawn = set(re.findall(r"[├└]── (\w+)", rowwise.errors.__doc__ or ""))
    defined = {
        name
        for name, value in vars(rowwise.errors).items()
        if isinstance(value, type) and issubclass(value, RowwiseClientError)
    }

    assert drawn | {"RowwiseClientError"} == defined
    assert defined <= set(rowwise.errors.__all__)

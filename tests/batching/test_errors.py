"""The error tree, as other packages rely on it."""

from __future__ import annotations

import server.batching
from server.batching import BatchingError, errors
from server.errors import RowwiseError


def test_every_error_is_in_the_tree_and_listed() -> None:
    classes = {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, BatchingError)
    }
    assert errors.__all__ == sorted(classes)
    assert issubclass(BatchingError, RowwiseError)
    assert classes <= set(server.batching.__all__)

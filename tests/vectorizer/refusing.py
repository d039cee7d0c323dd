"""What a refusal says, for tests that expect one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.vectorizer.oracle import spec
from vectorizer import VectorizerError, vectorize

__all__ = ["X", "refuse"]

#: The inputs of a function that says no others.
X = {"x": spec(3)}


def refuse(function: Callable[..., Any], error: type[VectorizerError], *, inputs: Any = None, **options: Any) -> str:
    """Return the message with which vectorizing is refused."""
    with pytest.raises(error) as caught:
        vectorize(function, inputs=X if inputs is None else inputs, buckets=options.pop("buckets", (2,)), **options)
    assert type(caught.value) is error
    return str(caught.value)

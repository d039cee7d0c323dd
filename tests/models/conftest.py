"""Each run trains the digit models afresh, in a directory of its own: a test must not pass on old weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from models import digits, digits_convnet


@pytest.fixture(scope="session", autouse=True)
def fresh_weights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROWWISE_CACHE", str(tmp_path_factory.mktemp("weights")))
        digits.weights.cache_clear()
        digits_convnet.weights.cache_clear()
        yield

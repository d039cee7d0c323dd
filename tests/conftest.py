"""What holds for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def fresh_weights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The digit models are trained afresh, once for all processes of the run: no test may pass on old weights."""
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROWWISE_CACHE", str(directory / "weights"))
        yield

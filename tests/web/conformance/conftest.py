"""One server for the whole matrix."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.conformance.models import Computing, every_echo
from tests.web.conformance.serving import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a model for each dtype and form, and one that computes."""
    with Server(tmp_path_factory.mktemp("uploads"), max_instances=5_000) as found:
        for _, _, model in every_echo():
            found.serve(model)
        found.serve(Computing(), labels={"stable": ""})
        yield found

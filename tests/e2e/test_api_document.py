"""The OpenAPI document of a server as an operator starts it: schemathesis asks whatever it allows and forbids."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.api_requests import KNOWN, ask_real_server, small_server

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def test_a_real_server_has_no_error_of_its_own_and_no_code_that_its_document_lacks(tmp_path: Path) -> None:
    with small_server(tmp_path / "store") as url:
        outcome = ask_real_server(url, known=KNOWN, n_examples=5, seed=5)
    assert outcome.failures == []
    assert outcome.n_operations > 50
    assert outcome.statuses[200] > 20
    assert 500 not in outcome.statuses

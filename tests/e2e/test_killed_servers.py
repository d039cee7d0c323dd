"""A whole server that is killed before a step of each operation, and started again.

The store alone is killed before every single step in ``tests/store``; here are the catalog, the engine and HTTP
besides.
``make kills`` does 200 rounds of both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.killed_rounds import OPERATIONS, Rounds

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_a_server_that_is_killed_in_any_operation_has_done_what_was_asked_or_nothing(tmp_path: Path, seed: int) -> None:
    rounds = Rounds(tmp_path, seed)
    for told in rounds.run(len(OPERATIONS)):
        print(told, flush=True)
    assert rounds.killed_in == dict.fromkeys(OPERATIONS, 1)

"""A short run of ``make fuzz`` through serving and staging, and that it sees what does not belong there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from server.batching import Batch
from server.engine.staging import Staging
from tests.fuzz.account import Violation
from tests.fuzz.engine_run import run
from tests.fuzz.program import draw
from tests.fuzz.tally import Tally, run_seed

N_MOVES = 100


def test_random_requests_of_fixed_and_varying_shapes_get_their_own_rows_and_nobody_elses() -> None:
    total = Tally()
    for seed in range(8):
        total.add(run_seed("engine", seed, N_MOVES))
    assert total.broken == []
    assert total.n_rows_right > 500
    assert {"answered", "Cancelled", "ExampleFailed"} <= total.ends.keys()


def owns_nothing(_staging: Staging, outputs: list[Any]) -> list[Any]:
    """The next batch overwrites what the callers of this one still read."""
    return outputs


def leaves_old_rows(self: Staging, batch: Batch) -> Sequence[Any]:
    """Padding holds rows of an earlier batch, which may be bad ones."""
    views = [view.copy() for view in self.blank(batch.bucket)]
    filled = FILL(self, batch)
    for view, before in zip(filled, views, strict=True):
        view[batch.n_rows :] = before[batch.n_rows :]
        view[batch.n_rows - 1] = before[0]
    return filled


FILL = Staging.fill


@pytest.mark.parametrize(("method", "broken"), [("owned", owns_nothing), ("fill", leaves_old_rows)])
def test_staging_that_is_broken_is_found_out(method: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Staging, method, broken)

    def run_some() -> None:
        for seed in range(20):
            run(draw(seed, N_MOVES))

    with pytest.raises(Violation):
        run_some()

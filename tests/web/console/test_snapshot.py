"""What a second is told to have been, from two readings."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from server.metrics import Metrics, Totals
from server.rights import Grant, Scope
from server.web.console.snapshot import Reading, Snapshot

ALL = Grant("all", Scope)
SOME = Grant("some", [Scope.READ], ["s*"])
SUM, OTHER = ("sum", 3, "predict"), ("other", 1, "predict")


def between(
    before: dict[Any, Totals],
    after: dict[Any, Totals],
    *,
    requests: tuple[dict[tuple[str, ...], int], dict[tuple[str, ...], int]] = ({}, {}),
    over_s: float = 2.0,
    **more: Any,
) -> Snapshot:
    options: dict[str, Any] = {"waiting": {}, "latencies_s": {}, **more}
    return Snapshot(Reading(10.0, before, requests[0]), Reading(10.0 + over_s, after, requests[1]), **options)


def told(snapshot: Snapshot, grant: Grant = ALL) -> Any:
    return orjson.loads(snapshot.text(grant))


def test_counters_that_grew_are_rates() -> None:
    snapshot = between(
        {SUM: Totals(100, 10, 20, 1.0)},
        {SUM: Totals(160, 30, 40, 2.0)},
        requests=(
            {("sum", "3", "predict", "200"): 5},
            {("sum", "3", "predict", "200"): 45, ("sum", "3", "predict", "429"): 4, ("sum", "3", "predict", "500"): 2},
        ),
    )
    (entry,) = told(snapshot)["entries"]
    assert (entry["model"], entry["version"], entry["entry"]) == SUM
    assert (entry["answered_per_s"], entry["refused_per_s"], entry["failed_per_s"]) == (20.0, 2.0, 1.0)
    assert (entry["rows_per_s"], entry["batches_per_s"], entry["rows_per_batch"]) == (30.0, 10.0, 3.0)
    assert entry["padding_share"] == pytest.approx(20 / 80)
    assert entry["busy_engines"] == 0.5
    assert entry["p50_ms"] is None, "no request's latency was remembered"


def test_quantiles_are_of_the_requests_that_are_remembered_and_the_sum_is_over_all() -> None:
    snapshot = between({}, {SUM: Totals(99, 99), OTHER: Totals(1, 1)}, latencies_s={SUM: [0.001] * 99, OTHER: [0.1]})
    sum_, other = sorted(told(snapshot)["entries"], key=lambda entry: -entry["rows_per_s"])
    assert (sum_["p50_ms"], sum_["p99_ms"], other["p50_ms"]) == (1.0, 1.0, 100.0)
    total = told(snapshot)["total"]
    assert total["p50_ms"] == 1.0
    assert total["p99_ms"] == pytest.approx(2.0, abs=0.1)
    assert total["rows_per_s"] == 50.0


def test_where_nothing_happened_nothing_is_told_but_rows_that_wait_are() -> None:
    same = {SUM: Totals(5, 5), OTHER: Totals(5, 5)}
    found = told(between(same, same, waiting={SUM: 0, OTHER: 7}))
    assert [(entry["model"], entry["waiting_rows"]) for entry in found["entries"]] == [("other", 7)]
    assert found["total"]["waiting_rows"] == 7
    assert found["total"]["padding_share"] is None


def test_a_version_that_was_made_again_counts_from_nothing() -> None:
    found = told(between({SUM: Totals(1_000, 100)}, {SUM: Totals(8, 2)}))
    assert found["total"]["rows_per_s"] == 4.0


def test_who_may_see_some_models_learns_nothing_of_the_others() -> None:
    snapshot = between(
        {},
        {SUM: Totals(2, 1), OTHER: Totals(200, 1)},
        requests=({}, {("", "", "", "404"): 10, ("other", "1", "predict", "200"): 200}),
        latencies_s={OTHER: [9.0]},
        waiting={OTHER: 50},
    )
    text = snapshot.text(SOME)
    assert b"other" not in text
    total = orjson.loads(text)["total"]
    assert (total["rows_per_s"], total["refused_per_s"], total["waiting_rows"], total["p99_ms"]) == (1.0, 0.0, 0, None)
    assert told(snapshot)["total"]["refused_per_s"] == 5.0, "requests for no model at all"


def test_a_text_is_made_once_for_all_who_see_the_same_and_outlives_what_it_was_made_from() -> None:
    snapshot = between({}, {SUM: Totals(2, 1)})
    text = snapshot.text(ALL)
    assert snapshot.text(Grant("another", [Scope.READ])) is text
    snapshot.settle()
    assert snapshot.known_text(ALL) is text
    assert snapshot.known_text(SOME) is None


def test_metrics_tell_what_was_counted() -> None:
    metrics = Metrics(process=False)
    series = metrics.of_version("sum", 3)
    series.batch(n_rows=5, bucket=8, compute_s=0.25)
    series.batch(n_rows=8, bucket=8, compute_s=0.5)
    assert metrics.totals() == {SUM: Totals(13, 2, 3, 0.75)}
    metrics.forget("sum", 3)
    assert metrics.totals() == {}

"""``rowwise capacity``: how many replicas a load takes, from what a server's model was measured to cost."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from rowwise.cli.app import app
from rowwise.cli.capacity import costs_with_requests
from server.batching.costs import TURN_S
from tests.client.conftest import COSTS


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "120", "TERM": "dumb"}).invoke(app, ["capacity", "double", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_a_batch_costs_what_is_served_of_it_and_what_its_requests_cost_besides() -> None:
    found = costs_with_requests(COSTS, request_s=1e-6)
    assert found == pytest.approx({1: 12e-6 + TURN_S + 1e-6, 8: 24e-6 + TURN_S + 8e-6, 64: 118e-6 + TURN_S + 64e-6})


def test_costs_that_were_not_measured_are_refused() -> None:
    with pytest.raises(ValueError, match="were not measured"):
        costs_with_requests({"entries": {"predict": []}}, request_s=0.0)


def test_more_rows_take_more_replicas_and_each_keeps_the_target(url: str) -> None:
    def plan(rate: int) -> dict[str, float]:
        arguments = ("--rate", str(rate), "--p99-ms", "2", "--headroom", "0", "--json", "--url", url)
        found: dict[str, float] = json.loads(run(*arguments).stdout)
        return found

    few, many = plan(5_000), plan(50_000)
    assert few["replicas"] < many["replicas"] <= 50_000 / many["most_rate"] + 1
    for rate, found in ((5_000, few), (50_000, many)):
        waiting = found["waiting"]
        assert waiting["p99_s"] <= 2e-3 * 1.001
        assert waiting["rate"] == pytest.approx(rate / found["replicas"])
        assert found["target_rows"] == pytest.approx(waiting["rate"] * waiting["mean_s"])


def test_people_are_told_in_a_table(url: str) -> None:
    said = run("--rate", "20000", "--p99-ms", "5", "--url", url).stdout
    assert "double: 20,000 rows/s, p99 5 ms" in said
    assert "replicas" in said
    assert "--target-rows" in said


def test_a_target_that_nothing_keeps_ends_with_1_and_says_why(url: str) -> None:
    result = run("--rate", "10", "--p99-ms", "0.01", "--url", url, code=1)
    assert "a lone row takes" in result.stderr

"""``rowwise bench``: a real model, built and measured in both forms."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from rowwise.cli import app
from rowwise.cli.bench import timings_table
from rowwise.served_bench import Timing

pytestmark = pytest.mark.slow

SPEC = json.dumps({"inputs": {"x": {"dtype": "float32", "shape": [3]}}, "buckets": [1, 8]})


def test_both_forms_are_measured_for_each_number_of_callers() -> None:
    given = ["--spec", SPEC, "--callers", "16", "--callers", "1", "--rounds", "3", "--json"]
    answer = CliRunner().invoke(app, ["bench", "loadtests.small_models:tripled", *given])
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert (told["rounds"], [timing["callers"] for timing in told["timings"]]) == (3, [1, 16])
    for timing in told["timings"]:
        assert len(timing["looped_rounds_s"]) == len(timing["served_rounds_s"]) == 3
        assert timing["looped_s"] == np.median(timing["looped_rounds_s"]) > 0
        assert timing["served_s"] == np.median(timing["served_rounds_s"]) > 0
        assert timing["gain"] == timing["looped_s"] / timing["served_s"]


def test_what_can_not_be_built_ends_with_1_and_the_reason() -> None:
    answer = CliRunner().invoke(app, ["bench", "no_such_module_at_all:predict"])
    assert (answer.exit_code, "no_such_module_at_all" in answer.stderr) == (1, True)


def test_a_table_tells_what_one_example_takes() -> None:
    timing = Timing(callers=8, looped_s=800e-6, served_s=80e-6, looped_rounds_s=(), served_rounds_s=())
    cells = [list(column.cells) for column in timings_table([timing]).columns]
    assert cells == [["8"], ["100.0"], ["10.0"], ["100,000"], ["10.0x"]]

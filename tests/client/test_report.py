from __future__ import annotations

import io

import pytest
from rich.console import Console

from rowwise.cli.certificate_report import certificate_report
from rowwise.cli.report import cost_chart, cost_table, costs_of
from rowwise.errors import BadAnswer

MODE = {"compiler": "xla", "executor": "default", "intra_op_threads": 2}


def printed(renderable: object) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100).print(renderable)
    return stream.getvalue()


def costs(*graphs: tuple[int, list[int], float]) -> dict[str, object]:
    """Say that each graph was timed in three modes: the one that serves it, a slower one, and one that failed."""
    entries = []
    for rows, lengths, cost_s in graphs:
        graph = {"rows": rows, "lengths": lengths, **MODE}
        entries += [
            {**graph, "compiler": "graph", "cost_s": 2 * cost_s, "chosen": False},
            {**graph, "cost_s": cost_s, "chosen": True},
            {**graph, "executor": "single_threaded", "cost_s": None, "chosen": False},
        ]
    return {"entries": {"predict": entries}}


def certificate(**changes: object) -> dict[str, object]:
    output = {"name": "output", "max_abs": 0.0, "max_relative": 0.0, "max_ulp": 0, "bitwise_equal": True}
    return {
        "function": "digits.predict",
        "tensorflow_version": "2.21.0",
        "ops": [{"op": "MatMul", "kind": "vectorized", "count": 3, "where": ["a.py:1"], "reason": None}],
        "loops_unbatched": 1,
        "loops_batched": 1,
        "parity": [{"rows": 4, "lengths": [], "n_examples": 4, "outputs": [output]}],
        "n_probes_refused": 0,
        "tolerance": {"float32": 1e-5},
        **changes,
    }


def test_a_certificate_without_loops_lists_none():
    text = printed(certificate_report(certificate()))

    assert "Certificate of digits.predict" in text
    assert "3 ops run once for all rows, 0 do not depend on the example, 0 run once per row" in text
    assert "Run once per row" not in text
    assert "float32 1e-05" in text


def test_looped_ops_are_named_with_their_places_and_why():
    op = {
        "op": "Unique",
        "kind": "looped",
        "count": 5,
        "where": [f"ranker.py:{line}" for line in range(1, 6)],
        "reason": "rows differ in [length]",
    }

    text = printed(certificate_report(certificate(ops=[op])))

    assert "ranker.py:1, ranker.py:2, ranker.py:3 and 2 more" in text
    assert "rows differ in [length]" in text


def test_the_check_shows_the_worst_output_of_each_bucket():
    close = {"name": "a", "max_abs": 1e-7, "max_relative": 2e-7, "max_ulp": 1, "bitwise_equal": True}
    far = {"name": "b", "max_abs": 3e-4, "max_relative": 4e-6, "max_ulp": None, "bitwise_equal": False}
    record = {"rows": 8, "lengths": [16, 32], "n_examples": 8, "outputs": [close, far]}

    line = next(
        line for line in printed(certificate_report(certificate(parity=[record]))).splitlines() if "16x32" in line
    )

    assert line.split() == ["8", "16x32", "8", "0.0003", "4e-06", "1"]


def test_the_cost_table_is_sorted_and_compares_with_the_smallest_bucket():
    lines = [line.split() for line in printed(cost_table(costs((8, [], 24e-6), (1, [], 12e-6)))).splitlines()]

    assert lines[2][:5] == ["1", "12.0", "12.00", "83,333", "1.0x"]
    assert lines[3][:5] == ["8", "24.0", "3.00", "333,333", "4.0x"]
    assert "xla, default, 2 threads (best of 2)" in " ".join(lines[3])


def test_each_padded_length_is_compared_with_its_own_smallest_bucket():
    read = costs((1, [8], 10e-6), (4, [8], 20e-6), (1, [16], 20e-6), (4, [16], 40e-6))

    lines = [line.split() for line in printed(cost_table(read)).splitlines()[2:]]

    assert [(line[0], line[1], line[5]) for line in lines] == [
        ("1", "8", "1.0x"),
        ("4", "8", "2.0x"),
        ("1", "16", "1.0x"),
        ("4", "16", "2.0x"),
    ]


def test_the_chart_draws_bars_in_proportion_for_the_longest_length():
    lines = printed(
        cost_chart(costs((1, [16], 40e-6), (2, [16], 40e-6), (64, [16], 40e-9), (1, [8], 1e-6)))
    ).splitlines()

    assert lines[0] == "Time for a row (µs) by batch size, at length 16"
    assert lines[1].count("█") == 2 * lines[2].count("█")
    assert lines[3].startswith("64 ▏ 0.00")
    assert all(len(line) <= 80 for line in lines)


def test_no_costs_draw_nothing():
    assert printed(cost_chart({"entries": {"predict": []}})).splitlines()[0] == "Time for a row (µs) by batch size"


def test_what_is_no_certificate_and_no_costs_is_refused():
    for wrong in ({}, {"entries": {}}, {"entries": {"predict": [{"rows": 1}]}}, {"entries": {"predict": [3]}}):
        with pytest.raises(BadAnswer, match="these are no costs"):
            costs_of(wrong)
    for wrong in ({}, certificate(ops=[3]), certificate(parity=None)):
        with pytest.raises(BadAnswer, match="this is no certificate"):
            certificate_report(wrong)

"""Figures of a report: what is compared with what, and when a target counts as met."""

from __future__ import annotations

from benchmarks.report import Line, table
from benchmarks.rounds import median_ratio, timed_in_rounds
from benchmarks.targets import derivative_verdicts, forward_verdicts


def _line(**times_s: float) -> Line:
    times = {name.replace("_", " "): [seconds] * 3 for name, seconds in times_s.items() if name != "vectorized_map"}
    if "vectorized_map" in times_s:
        times["vectorized_map"] = [times_s["vectorized_map"]] * 3
    return Line(model="mlp", rows=8, times_s=times)


def test_contenders_are_timed_in_turn() -> None:
    asked: list[str] = []

    def timer(name: str, n_calls: int) -> float:
        asked.append(f"{name}{n_calls}")
        return 1.0

    timers = {name: lambda n_calls, name=name: timer(name, n_calls) for name in "ab"}
    times = timed_in_rounds(timers, budget_s=0.0, min_rounds=2)
    # Once each to find out how often, then once each in every round, in whatever order.
    assert [sorted(asked[at : at + 2]) for at in (0, 2, 4)] == [["a1", "b1"]] * 3
    assert times == {"a": [1.0, 1.0], "b": [1.0, 1.0]}


def test_a_slow_moment_that_hits_both_leaves_the_ratio_alone() -> None:
    assert median_ratio([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == 2.0


def test_the_fastest_form_of_each_counts() -> None:
    line = _line(ours=4.0, ours_xla=3.0, ours_partitioned_xla=2.0, by_hand=9.0, by_hand_xla=3.0)
    assert line.faster_form("ours") == "ours partitioned xla"
    assert line.multiple("by hand") == 1.5


def test_dynet_without_automatic_batching_is_no_form_of_dynet_with_it() -> None:
    line = _line(ours=1.0, dynet=9.0, dynet_autobatch=4.0)
    assert line.multiple("dynet") == 9.0
    assert line.multiple("dynet autobatch") == 4.0


def test_a_table_tells_what_failed_from_what_was_not_tried() -> None:
    line = _line(ours=1e-6, by_hand=2e-6)
    line.missing["vectorized_map"] = "no"
    header, _, cells = table([line]).splitlines()
    assert header == "| model | rows | ours, µs | form | by hand | vectorized_map |"
    assert cells == "| mlp | 8 | 1 | graph | 2.00 | fails |"


def test_being_slower_than_by_hand_misses_the_target() -> None:
    assert all(verdict.startswith("- met") for verdict in forward_verdicts([_line(ours=1.0, by_hand=1.0)]))
    assert all(verdict.startswith("- MISSED") for verdict in forward_verdicts([_line(ours=1.2, by_hand=1.0)]))


def test_being_slower_than_a_loop_misses_the_target() -> None:
    line = Line(model="add", rows=8, times_s={"ours": [2.0], "while_loop": [1.0]})
    assert derivative_verdicts([line]) == ["- MISSED: 0.50 times as fast as while_loop at worst, add (1)"]

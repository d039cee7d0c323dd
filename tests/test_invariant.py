"""Invariant mode's choice of buckets, and what callers get of it under any load."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from server.artifact import CompiledGraph, ExecutionMode
from server.batching import CostTable, Group
from server.invariant import invariant_set, row_cost_s
from tests.batching.doubles import Bench, Ran

SIZES = (1, 2, 4, 8, 16)
ONE_THREAD = ExecutionMode(compiler="graph", executor="single_threaded", intra_op_threads=1)
TWO_THREADS = ExecutionMode(compiler="graph", executor="default", intra_op_threads=2)
PARTITIONED = ExecutionMode(
    compiler="graph", executor="single_threaded", intra_op_threads=1, control_flow="partitioned"
)


def graph(rows: int, cost_s: float, mode: ExecutionMode = ONE_THREAD, lengths: tuple[int, ...] = ()) -> CompiledGraph:
    return CompiledGraph(rows=rows, lengths=lengths, signature=f"predict_{rows}", mode=mode, cost_s=cost_s)


def rows_of(graphs: list[CompiledGraph]) -> list[int]:
    return [each.rows for each in graphs]


def test_set_with_the_best_throughput_serves() -> None:
    graphs = [graph(1, 1.0), graph(2, 1.2), graph(4, 1.6), graph(8, 2.4)]
    assert rows_of(invariant_set(graphs, [[(1,), (2,), (4,)], [(8,)]])) == [8]
    assert rows_of(invariant_set(graphs, [[(1,), (2,)], [(8,), (4,)]])) == [4, 8]


def test_of_two_sets_as_good_the_one_that_serves_a_lone_example_sooner_serves() -> None:
    graphs = [graph(1, 1.0), graph(8, 4.1), graph(16, 8.0)]
    assert rows_of(invariant_set(graphs, [[(16,)], [(1,), (8,)]])) == [1, 8]


def test_where_no_two_agree_one_bucket_serves() -> None:
    graphs = [graph(1, 1.0), graph(2, 1.5), graph(4, 4.0)]
    assert rows_of(invariant_set(graphs, [[(1,)], [(2,)], [(4,)]])) == [2]


def test_unsteady_bucket_never_serves_and_bucket_one_is_what_may_be_left() -> None:
    graphs = [graph(1, 1.0), graph(8, 1.1)]
    assert rows_of(invariant_set(graphs, [[(1,)]])) == [1]
    assert invariant_set(graphs, []) == []


def test_threads_and_partitioned_rows_disqualify_a_bucket_but_partitioning_a_single_row_does_not() -> None:
    graphs = [graph(1, 1.0, PARTITIONED), graph(2, 1.1), graph(4, 1.2, PARTITIONED), graph(8, 1.3, TWO_THREADS)]
    assert rows_of(invariant_set(graphs, [[(1,), (2,), (4,), (8,)]])) == [1, 2]


def test_groups_of_other_lengths_are_nothing_to_a_length() -> None:
    graphs = [graph(2, 1.0, lengths=(16,)), graph(4, 1.5, lengths=(16,))]
    assert rows_of(invariant_set(graphs, [[(2, 8), (4, 8)], [(4, 16), (2, 16)]])) == [2, 4]


partitions = st.lists(st.integers(0, 3), min_size=len(SIZES), max_size=len(SIZES))
costs = st.lists(st.floats(0.1, 10.0), min_size=len(SIZES), max_size=len(SIZES))


def in_groups(classes: list[int]) -> list[list[tuple[int, ...]]]:
    return [
        [(size,) for size, known in zip(SIZES, classes, strict=True) if known == each] for each in sorted(set(classes))
    ]


@given(classes=partitions, costs_s=costs, seed=st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_choice_is_one_agreeing_set_of_nearly_the_best_throughput_in_whatever_order_it_is_told(
    classes: list[int], costs_s: list[float], seed: int
) -> None:
    graphs = [graph(size, cost_s) for size, cost_s in zip(SIZES, costs_s, strict=True)]
    groups = in_groups(classes)
    chosen = invariant_set(graphs, groups)
    assert len({dict(zip(SIZES, classes, strict=True))[each.rows] for each in chosen}) == 1
    assert row_cost_s(chosen) <= 1.05 * row_cost_s(graphs) + 1e-12
    shuffled = random.Random(seed)
    for members in (graphs, groups, *groups):
        shuffled.shuffle(members)  # type: ignore[arg-type]
    assert invariant_set(graphs, groups) == chosen


class Rounding:
    """Answers as kernels do that round by the size of the batch: with the example and the class of its bucket."""

    def __init__(self, classes: dict[int, int]) -> None:
        self._classes = classes

    def answers(self, ran: Ran) -> list[tuple[object, int]]:
        return [(payload, self._classes[ran.batch.bucket]) for payload, _ in ran.rows()]


@given(
    classes=partitions,
    costs_s=costs,
    arrivals=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 2)), min_size=1, max_size=30),
)
@settings(max_examples=100, deadline=None)
def test_same_example_gets_the_same_answer_whatever_it_is_batched_with(
    classes: list[int], costs_s: list[float], arrivals: list[tuple[int, int]]
) -> None:
    graphs = [graph(size, cost_s) for size, cost_s in zip(SIZES, costs_s, strict=True)]
    bench = Bench()
    bench.group = Group("m", CostTable({each.rows: each.cost_s for each in invariant_set(graphs, in_groups(classes))}))
    rounding = Rounding(dict(zip(SIZES, classes, strict=True)))
    answers: dict[object, set[tuple[object, int]]] = {}

    def finish() -> None:
        for answer in rounding.answers(bench.manual.running[0]):
            answers.setdefault(answer[0], set()).add(answer)
        bench.manual.finish()

    for n_rows, pause in arrivals:
        bench.submit(f"example {n_rows % 3}", n_rows)
        for _ in range(pause):
            bench.ticks.run()
            if bench.manual.running:
                bench.clock.advance(1.0)
                finish()
    bench.ticks.run()
    while bench.manual.running:
        finish()
        bench.ticks.run()
    assert bench.batcher.n_waiting == 0
    assert all(len(different) == 1 for different in answers.values())

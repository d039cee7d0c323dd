"""The ways to run a per-example function on a batch, as graphs.

    one by one       the graph of one example, called once for each row
    map_fn           tf.map_fn: TensorFlow's own loop over the rows
    vectorized_map   TensorFlow's pfor as it comes
    ours             this project's vectorizer
    by hand          the model rewritten for batches

The last three run as a graph and compiled by XLA, and ours with loops and branches masked and partitioned where that
may pay. The server's builder takes the fastest form, so that one counts; so it does for the others.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.sessions import with_xla
from benchmarks.workloads import WORKLOADS, Workload
from vectorizer import Bucket, Vectorized, vectorize
from vectorizer.for_xla import for_xla

__all__ = ["BOTH_FORMS", "ONE_BY_ONE", "Graphs", "graphs_of", "said"]

ONE_BY_ONE = "one by one"
#: Run as a graph and compiled by XLA.
BOTH_FORMS = ("ours", "ours partitioned", "by hand", "vectorized_map")


@dataclass(slots=True)
class Graphs:
    """Concrete functions by contender, and why a contender has none."""

    outputs: tuple[str, ...]
    made: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, make: Callable[[], Any]) -> None:
        """Make a graph; what fails is a result."""
        try:
            self.made[name] = make()
        except Exception as error:  # noqa: BLE001 - stock pfor fails on some models, which is what is measured
            self.missing[name] = said(error)


def said(error: Exception) -> str:
    """Return an error in one line."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"


def graphs_of(workload: Workload, batch: Mapping[str, np.ndarray], *, sizes: tuple[int, ...]) -> Graphs:
    """Return the graphs of all contenders that run in TensorFlow, for the batch's size, which is one of ``sizes``."""
    n_rows = len(next(iter(batch.values())))
    one_row = {
        key: tf.TensorSpec(value.shape[1:], workload.inputs[key].dtype, name=key) for key, value in batch.items()
    }
    rows = {key: tf.TensorSpec([n_rows, *spec.shape], spec.dtype, name=key) for key, spec in one_row.items()}
    one = tf.function(workload.predict)
    alone = one.get_concrete_function(**one_row)
    answers = {key: tf.TensorSpec(value.shape, value.dtype) for key, value in alone.structured_outputs.items()}

    def mapped(**batched: tf.Tensor) -> Any:
        return tf.map_fn(lambda row: one(**row), batched, fn_output_signature=answers)

    def stock(**batched: tf.Tensor) -> Any:
        # It logs at length where it fails; what it raises is in the report.
        logging.getLogger("tensorflow").setLevel(logging.CRITICAL)
        try:
            return tf.vectorized_map(lambda row: one(**row), batched)
        finally:
            logging.getLogger("tensorflow").setLevel(logging.ERROR)

    def by_hand(**batched: tf.Tensor) -> Any:
        return workload.by_hand(**batched)

    graphs = Graphs(outputs=tuple(sorted(answers)), made={ONE_BY_ONE: alone})
    graphs.add("map_fn", lambda: tf.function(mapped).get_concrete_function(**rows))
    graphs.add("vectorized_map", lambda: tf.function(stock).get_concrete_function(**rows))
    graphs.add("ours", lambda: _ours(workload.name, n_rows, sizes))
    if (partitioned := _partitioned(workload.name, n_rows, sizes)) is not None:
        graphs.made["ours partitioned"] = partitioned
    graphs.add("by hand", lambda: tf.function(by_hand).get_concrete_function(**rows))
    for name in BOTH_FORMS:
        if name in graphs.made and workload.not_in_xla is None:
            compiled = for_xla if name.startswith("ours") else with_xla
            graphs.add(f"{name} xla", lambda name=name, compiled=compiled: compiled(graphs.made[name]))  # type: ignore[misc]
    return graphs


def _ours(name: str, n_rows: int, sizes: tuple[int, ...]) -> Any:
    vectorized = _vectorized(name, sizes)
    return vectorized.bucket(n_rows, lengths=tuple(axis.max for axis in vectorized.axes))


def _partitioned(name: str, n_rows: int, sizes: tuple[int, ...]) -> Any:
    """Return the second form of a graph with costly loops or branches; None if it has none, or failed."""
    try:
        vectorized = _vectorized(name, sizes)
    except Exception:  # noqa: BLE001 - it is reported where the first form is asked for
        return None
    lengths = tuple(axis.max for axis in vectorized.axes)
    return vectorized.partitioned.get(Bucket(rows=n_rows, lengths=lengths))


@functools.lru_cache(maxsize=1)
def _vectorized(name: str, sizes: tuple[int, ...]) -> Vectorized:
    workload = WORKLOADS[name]
    return vectorize(
        workload.predict,
        inputs=workload.inputs,
        buckets=sizes,
        partitioned=True,
        lengths=workload.lengths,
        allow_looped=workload.allow_looped,
        tolerance=workload.tolerance,
        examples=[_as_sent(workload, row) for row in islice(workload.examples(), 4)],
    )


def _as_sent(workload: Workload, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an example without the lengths, which are filled in."""
    told = {length.length_input for length in workload.lengths.values()}
    return {name: value for name, value in row.items() if name not in told}

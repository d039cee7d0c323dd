"""Vectorized graphs against the other ways to run a per-example function: ``python -m benchmarks.vectorizer``.

All ways of one model and batch size run through sessions, as the server runs its graphs, interleaved round by round,
so that a slow moment of the machine hits all of them; the median counts. Each gives the answers of the per-example
function, which is checked first. Graphs without loops and branches get the single-threaded executor, which is the
fastest for them; the others the default one, as three levels of nesting can block the single-threaded one for ever.

    one by one       the per-example graph, called once for each row
    map_fn           tf.map_fn: TensorFlow's own loop over the rows
    vectorized_map   TensorFlow's pfor as it comes
    Rowwise          this project's vectorizer
    by hand          the model rewritten for batches (benchmarks/by_hand.py)
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Way", "main", "measure_model"]

MODELS = ("digits", "digits_convnet", "embedding", "lstm", "implied_volatility")
BATCH_SIZES = (1, 8, 64)
WAYS = ("one by one", "map_fn", "vectorized_map", "Rowwise", "by hand")
#: Time for all rounds of one model and batch size, seconds.
BUDGET_S = 6.0
MIN_ROUNDS = 5
MAX_ROUNDS = 201
CONTROL_FLOW = {"Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"}
#: Vectorized may take this much more than batched by hand.
TARGET = 1.1

Arrays = Mapping[str, np.ndarray]


@dataclass
class Way:
    """One way to run a batch, and the times that it took, seconds. ``error`` says why there are none."""

    name: str
    call: Callable[[], list[np.ndarray]] | None
    error: str | None = None
    times_s: list[float] = field(default_factory=list)

    @property
    def median_s(self) -> float | None:
        """Median of the times, or None if it could not be run."""
        return statistics.median(self.times_s) if self.times_s else None


def batch_of(module: Any, n_rows: int) -> dict[str, np.ndarray]:
    """Stack real examples; variable lengths are padded to the model's own largest."""
    limits = {name: entry["max"] for name, entry in getattr(module, "SPEC", {}).get("inputs", {}).items()}
    rows = list(itertools.islice(itertools.cycle(module.examples()), n_rows))

    def padded(name: str, value: Any) -> np.ndarray:
        array = np.asarray(value, module.INPUTS[name].dtype.as_numpy_dtype)
        if name not in limits:
            return array
        return np.pad(array, [(0, limits[name] - len(array)), *([(0, 0)] * (array.ndim - 1))])

    return {name: np.stack([padded(name, row[name]) for row in rows]) for name in module.INPUTS}


def graphs_of(name: str, batch: Arrays) -> tuple[dict[str, Any], dict[str, str]]:
    """Return each way's concrete function for this batch, and why a way has none."""
    import tensorflow as tf

    from benchmarks.by_hand import BY_HAND
    from vectorizer import Length, vectorize

    module: Any = importlib.import_module(f"models.{name}")
    n_rows = len(next(iter(batch.values())))
    example = {key: tf.TensorSpec(value.shape[1:], value.dtype, name=key) for key, value in batch.items()}
    specs = {key: tf.TensorSpec(value.shape, value.dtype, name=key) for key, value in batch.items()}
    one = tf.function(module.predict)
    outputs = one.get_concrete_function(**example).structured_outputs
    as_specs = {key: tf.TensorSpec(value.shape, value.dtype) for key, value in outputs.items()}
    lengths = {
        key: Length(max=entry["max"], buckets=(entry["max"],), length_input=entry.get("length_input"))
        for key, entry in getattr(module, "SPEC", {}).get("inputs", {}).items()
    }

    def ours() -> Any:
        spec = getattr(module, "SPEC", {})
        vectorized = vectorize(
            module.predict,
            inputs=module.INPUTS,
            buckets=(n_rows,),
            lengths=lengths,
            tolerance=spec.get("tolerance"),
            examples=spec.get("examples", ()),
        )
        return vectorized.bucket(n_rows, lengths=tuple(axis.max for axis in vectorized.axes))

    def mapped(**rows: Any) -> Any:
        return tf.map_fn(lambda row: one(**row), rows, fn_output_signature=as_specs)

    ways: dict[str, Callable[[], Any]] = {
        "one by one": lambda: one.get_concrete_function(**example),
        "map_fn": lambda: tf.function(mapped).get_concrete_function(**specs),
        "vectorized_map": lambda: tf.function(
            lambda **rows: tf.vectorized_map(lambda row: one(**row), rows)
        ).get_concrete_function(**specs),
        "Rowwise": ours,
    }
    if name in BY_HAND:
        ways["by hand"] = lambda: tf.function(BY_HAND[name]).get_concrete_function(**specs)
    graphs, errors = {}, {}
    for way, make in ways.items():
        try:
            graphs[way] = make()
        except Exception as error:  # noqa: BLE001 - stock pfor fails on some models, which is a result
            errors[way] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
    return graphs, errors


def measure_model(name: str, n_rows: int, *, budget_s: float = BUDGET_S) -> list[Way]:
    """Time each way of running ``n_rows`` real examples of a model.

    Errors: AssertionError if a way's answers differ from those of the per-example function.
    """
    import tensorflow as tf

    from server.engine._session import GraphSession

    batch = batch_of(importlib.import_module(f"models.{name}"), n_rows)
    graphs, errors = graphs_of(name, batch)
    outputs = sorted(graphs["one by one"].structured_outputs)
    keys = {way: way.replace(" ", "_") for way in graphs}
    with tempfile.TemporaryDirectory() as directory:
        root = tf.Module()
        root.kept = [variable for graph in graphs.values() for variable in graph.graph.variables]
        tf.saved_model.save(root, directory, signatures={keys[way]: graph for way, graph in graphs.items()})
        sessions = {
            executor: GraphSession(Path(directory), executor=executor, intra_op_threads=1)
            for executor in ("single_threaded", "default")
        }
    try:
        calls = {
            way: sessions[executor_for(graphs[way])].callable(key, inputs=list(batch), outputs=outputs)
            for way, key in keys.items()
        }
        rows = [[np.array(value[i], order="C") for value in batch.values()] for i in range(n_rows)]
        whole = list(batch.values())

        def looped() -> list[np.ndarray]:
            answers = [calls["one by one"](*row) for row in rows]
            return [np.stack(column) for column in zip(*answers, strict=True)]

        ways = [
            Way(way, looped if way == "one by one" else (lambda way=way: calls[way](*whole)))  # type: ignore[misc]
            for way in graphs
        ]
        expected = looped()
        for way in ways:
            check(way, expected)
        time_all([way for way in ways if way.error is None], budget_s=budget_s)
    finally:
        for session in sessions.values():
            session.close()
    return ways + [Way(way, None, error) for way, error in errors.items()]


def executor_for(graph: Any) -> str:
    """Return the executor that runs a graph: see the module's text."""
    definition = graph.graph.as_graph_def()
    nodes = itertools.chain(definition.node, *(function.node_def for function in definition.library.function))
    branching = any(node.op in CONTROL_FLOW for node in nodes)
    return "default" if branching else "single_threaded"


def check(way: Way, expected: list[np.ndarray]) -> None:
    """Compare a way's answers with the per-example function's. What fails to run at all becomes its ``error``."""
    assert way.call is not None
    try:
        answers = way.call()
    except Exception as error:  # noqa: BLE001 - as above
        way.error = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
        return
    for got, wanted in zip(answers, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=f"{way.name} answers differently")


def time_all(ways: list[Way], *, budget_s: float) -> None:
    """Run the ways in turn until the budget is spent, at least MIN_ROUNDS times each."""
    end_s = time.perf_counter() + budget_s
    for n_rounds in range(MAX_ROUNDS):
        if n_rounds >= MIN_ROUNDS and time.perf_counter() > end_s:
            return
        for way in ways:
            assert way.call is not None
            way.call()  # The call after another graph's finds cold caches; it is not timed.
            start_s = time.perf_counter()
            way.call()
            way.times_s.append(time.perf_counter() - start_s)


def report_line(name: str, n_rows: int, ways: list[Way]) -> str:
    """Return one line of the table, microseconds for the whole batch."""
    found = {way.name: way for way in ways}
    cells = []
    for way in WAYS:
        median_s = found[way].median_s if way in found else None
        cells.append(f"{'fails' if way in found else '-':>15}" if median_s is None else f"{median_s * 1e6:>15,.0f}")
    return f"{name:<20}{n_rows:>5}" + "".join(cells)


def main() -> int:
    """Measure, print the table, write it as JSON."""
    parser = argparse.ArgumentParser(description="Vectorized graphs against loops, stock pfor and by hand.")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="where graphs run (default: cpu)")
    parser.add_argument("--models", default=",".join(MODELS), help="default: %(default)s")
    parser.add_argument("--rows", default=",".join(map(str, BATCH_SIZES)), help="batch sizes (default: %(default)s)")
    parser.add_argument("--budget-s", type=float, default=BUDGET_S, help="seconds for each line (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("reports/bench"), help="default: %(default)s")
    options = parser.parse_args()

    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # Before TensorFlow looks.
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if options.device == "gpu" and not gpus:
        print("TensorFlow lists no GPU on this machine, so nothing was measured.")
        print("It needs a driver and the CUDA libraries: pip install 'rowwise[gpu]'. The same on the CPU: make bench")
        return 0
    device = ", ".join(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus)
    print(f"Microseconds for a batch, median; {device or platform.processor() or platform.machine()}, "
          f"TensorFlow {tf.__version__}, one thread.")  # fmt: skip
    print(f"{'model':<20}{'rows':>5}" + "".join(f"{way:>15}" for way in WAYS), flush=True)
    results, notes = [], []
    for name in options.models.split(","):
        for n_rows in map(int, options.rows.split(",")):
            ways = measure_model(name, n_rows, budget_s=options.budget_s)
            print(report_line(name, n_rows, ways), flush=True)
            notes += [f"{name}, {n_rows} rows, {way.name}: {way.error}" for way in ways if way.error]
            results.append(
                {
                    "model": name,
                    "rows": n_rows,
                    "seconds": {way.name: way.median_s for way in ways},
                    "errors": {way.name: way.error for way in ways if way.error},
                }
            )
    print("\n".join(["", *notes, *verdicts(results)]))
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"vectorizer-{options.device}.json"
    path.write_text(json.dumps({"tensorflow": tf.__version__, "device": device or "cpu", "results": results}, indent=1))
    print(f"\n{path}")
    return 0


def verdicts(results: list[dict[str, Any]]) -> list[str]:
    """Say for each model how the largest batch compares with the one that was batched by hand, and with no batch."""
    lines = []
    for name in dict.fromkeys(result["model"] for result in results):
        last = max((result for result in results if result["model"] == name), key=lambda result: result["rows"])
        ours = last["seconds"].get("Rowwise")
        if ours is None:
            continue
        line = f"{name}, {last['rows']} rows: {last['seconds']['one by one'] / ours:.1f}x as fast as one by one"
        if by_hand := last["seconds"].get("by hand"):
            ratio = ours / by_hand
            line += f"; {ratio:.2f}x the time of by hand, target {TARGET}: {'met' if ratio <= TARGET else 'MISSED'}"
        lines.append(line)
    return lines


if __name__ == "__main__":
    sys.exit(main())

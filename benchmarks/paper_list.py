"""The paper's configurations, ours against a loop and stock pfor: ``python -m benchmarks.paper_list``.

    while_loop       tf.map_fn over the rows, and a loop over the elements of a Jacobian
    vectorized_map   TensorFlow's pfor over the rows, and over the elements of a Jacobian
    ours             this project's vectorizer and its derivatives

All give the same answers, which is checked first, and are timed interleaved through the server's kind of session.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.report import Line, write_report
from benchmarks.rounds import timed_in_rounds, timer_of
from benchmarks.sessions import callables_of
from benchmarks.targets import derivative_verdicts
from server.thread_pools import keep_pools_apart

__all__ = ["main", "measure_line"]

#: Time for all rounds of one configuration, seconds.
BUDGET_S = 6.0


def measure_line(configuration: Any, *, budget_s: float) -> Line:
    """Check and time all contenders of a configuration.

    Errors: AssertionError if a contender's answers differ from the loop's.
    """
    from benchmarks.contenders import said

    batch = configuration.batch(configuration.rows)
    graphs, missing, outputs = _graphs(configuration, batch)
    arrays = list(batch.values())
    with callables_of(graphs, inputs=list(batch), outputs=outputs) as calls:
        expected = calls["while_loop"](*arrays)
        timers = {}
        for name, call in calls.items():
            try:
                answers = call(*arrays)
            except Exception as error:  # noqa: BLE001 - what XLA can't compile is a result
                missing[name] = said(error)
                continue
            for got, wanted in zip(answers, expected, strict=True):
                size = max(1.0, float(np.abs(wanted).max()))
                np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * size, err_msg=f"{name} differs")
            timers[name] = timer_of(lambda call=call: call(*arrays))  # type: ignore[misc]
        times_s = timed_in_rounds(timers, budget_s=budget_s, min_rounds=5)
    return Line(model=configuration.name, rows=configuration.rows, times_s=times_s, missing=missing)


def _graphs(
    configuration: Any, batch: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, str], tuple[str, ...]]:
    """Return the contenders' graphs, why some are missing, and the names of what they return."""
    import tensorflow as tf

    from benchmarks.contenders import BOTH_FORMS, Graphs, said
    from benchmarks.paper import per_example
    from benchmarks.sessions import with_xla

    rows = {
        name: tf.TensorSpec([configuration.rows, *spec.shape], spec.dtype, name=name)
        for name, spec in configuration.inputs.items()
    }
    looped, pushed = (tf.function(per_example(configuration, use_pfor=use_pfor)) for use_pfor in (False, True))
    example = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in configuration.inputs.items()}
    answers = looped.get_concrete_function(**example).structured_outputs
    specs = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in answers.items()}

    def traced(function: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: tf.function(function).get_concrete_function(**rows)

    graphs = Graphs(outputs=tuple(specs))
    graphs.add(
        "while_loop",
        traced(lambda **all_rows: tf.map_fn(lambda row: looped(**row), all_rows, fn_output_signature=specs)),
    )
    graphs.add("vectorized_map", traced(lambda **all_rows: tf.vectorized_map(lambda row: pushed(**row), all_rows)))
    try:
        graphs.made |= _ours(configuration, batch, rows)
    except Exception as error:  # noqa: BLE001 - what fails is a result
        graphs.missing["ours"] = said(error)
    if configuration.by_hand is not None:
        graphs.add("by hand", traced(lambda **all_rows: {"d0": configuration.by_hand(**all_rows)}))
    for name in BOTH_FORMS:
        if name in graphs.made:
            graphs.add(f"{name} xla", lambda name=name: with_xla(graphs.made[name]))  # type: ignore[misc]
    return graphs.made, graphs.missing, tuple(specs)


def _ours(configuration: Any, batch: Mapping[str, np.ndarray], rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return the forms of ours: the builder measures the partitioned one too, where a function has loops."""
    import tensorflow as tf

    from vectorizer import Bucket, Derivative, vectorize

    sources = configuration.wrt() if configuration.wrt else None
    derivatives = [Derivative(kind=configuration.kind, wrt=sources, name="taken")] if configuration.kind else []
    vectorized = vectorize(
        configuration.function,
        inputs=configuration.inputs,
        buckets=(configuration.rows,),
        derivatives=derivatives,
        partitioned=not configuration.kind,
        examples=[{name: value[row] for name, value in batch.items()} for row in range(min(2, configuration.rows))],
    )
    forms = {"ours": (vectorized.derivatives["taken"] if configuration.kind else vectorized).bucket(configuration.rows)}
    if (second := vectorized.partitioned.get(Bucket(rows=configuration.rows))) is not None:
        forms["ours partitioned"] = second
    order = [variable.name.partition(":")[0] for variable in sources or ()]

    def named(graph: Any) -> Any:
        def renamed(**all_rows: Any) -> dict[str, Any]:
            results = graph(**all_rows)
            return {f"d{index}": results[name] for index, name in enumerate(order if len(order) > 1 else results)}

        return tf.function(renamed, autograph=False).get_concrete_function(**rows)

    return {name: named(graph) for name, graph in forms.items()}


def main() -> int:
    """Measure, print the table, write the report."""
    from benchmarks.contenders import said
    from benchmarks.paper import CONFIGURATIONS

    parser = argparse.ArgumentParser(description="The paper's configurations: ours against a loop and stock pfor.")
    parser.add_argument("--only", default="", help="configurations by name (default: all but the long ones)")
    parser.add_argument("--budget-s", type=float, default=BUDGET_S, help="seconds for each line (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"), help="default: %(default)s")
    parser.add_argument("--check", action="store_true", help="only vectorize: is each accepted, with right answers?")
    options = parser.parse_args()
    keep_pools_apart()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # Before TensorFlow looks.
    machine = describe_machine()
    wanted = options.only.split(",") if options.only else [entry.name for entry in CONFIGURATIONS if not entry.is_long]
    chosen = [entry for entry in CONFIGURATIONS if entry.name in wanted]
    if options.check:
        return _checked(chosen)
    print(f"{machine}\nTime of a batch as a multiple of ours; microseconds for ours.\n")
    lines = []
    for configuration in chosen:
        start_s = time.perf_counter()
        try:
            line = measure_line(configuration, budget_s=options.budget_s)
        except Exception as error:  # noqa: BLE001 - the other configurations are still to be measured
            line = Line(model=configuration.name, rows=configuration.rows, times_s={}, missing={"all": said(error)})
        lines.append(line)
        print(f"{line.text()}   ({time.perf_counter() - start_s:.0f} s)", flush=True)
        # After each line, so that a run that is broken off leaves what it has.
        write_report(lines, title="paper", machine=machine, directory=options.output, verdicts=derivative_verdicts)
        for name, reason in line.missing.items():
            print(f"    {name}: {reason}", flush=True)
    print("\n" + (options.output / "paper.md").read_text())
    # A configuration without ours is no measurement, and was once overlooked.
    return int(any({"all", "ours"} & set(line.missing) for line in lines))


def _checked(chosen: Sequence[Any]) -> int:
    """Vectorize configurations at their own sizes, which compares answers with a loop's; return 1 if one is refused."""
    import tensorflow as tf

    from benchmarks.contenders import said

    failed = 0
    for configuration in chosen:
        rows = {
            name: tf.TensorSpec([configuration.rows, *spec.shape], spec.dtype, name=name)
            for name, spec in configuration.inputs.items()
        }
        outcome = "accepted"
        try:
            _ours(configuration, configuration.batch(configuration.rows), rows)
        except Exception as error:  # noqa: BLE001 - the other configurations are still to be tried
            outcome, failed = said(error), 1
        print(f"{configuration.name}, {configuration.rows} rows: {outcome}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

"""The certificate beside the oracle, and beside what ``tf.vectorized_map`` warns of.

``python -m tests.vectorizer.probe_functions.comparison [GROUP ...]`` prints the table.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tests.vectorizer.probe_functions import control_flow, dtypes, looped, shapes, state
from tests.vectorizer.probe_functions.executed_loops import executed_loops, looping_ops, op_types
from tests.vectorizer.probe_functions.probe import ProbeFunction
from vectorizer import Bucket, Vectorized, vectorize
from vectorizer._pfor import stock_registry
from vectorizer.probe_batches import fits, stack_probes

__all__ = ["GROUPS", "built", "looping", "main"]

GROUPS = {"control flow": control_flow, "shapes": shapes, "state": state, "dtypes": dtypes, "looped": looped}
_N_ROWS = 2


class _EveryOp:
    """All op types, as a collection."""

    def __contains__(self, _op_type: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def built(probe: ProbeFunction) -> Vectorized:
    """Vectorize with every op allowed to loop, so that the certificate is what tells."""
    stock = stock_registry()
    return vectorize(
        probe.function,
        inputs=probe.inputs,
        lengths=probe.lengths,
        buckets=(_N_ROWS,),
        allow_looped=_EveryOp(),
        converters={op_type: stock[op_type] for op_type in probe.stock},
    )


def looping(vectorized: Vectorized) -> set[str]:
    """Return the op types that loop over the rows in any bucket, by the oracle."""
    types = op_types(vectorized.function.graph.as_graph_def())
    found: set[str] = set()
    for bucket, graph in vectorized.graphs.items():
        probe = next(probe for probe in vectorized.probes if fits(probe, bucket))
        inputs, axes = vectorized.function.inputs, vectorized.axes
        rows = stack_probes(inputs, axes, bucket, [probe] * bucket.rows)
        one = stack_probes(inputs, axes, Bucket(rows=1, lengths=bucket.lengths), [probe])
        unbatched = executed_loops(
            lambda **given: vectorized.function(given), {name: value[0] for name, value in one.items()}
        )
        found |= looping_ops(executed_loops(graph, rows), unbatched, types).keys()
    return found


def _stock(probe: ProbeFunction, vectorized: Vectorized) -> tuple[set[str], set[str]] | None:
    """Return which ops loop in ``tf.vectorized_map``, by the oracle, and which it warns of; None if it fails."""
    rows = stack_probes(vectorized.function.inputs, (), Bucket(rows=_N_ROWS), [vectorized.probes[0]] * _N_ROWS)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = tf.get_logger()
    logger.addHandler(handler)
    try:

        @tf.function(autograph=False)
        def mapped(**tensors: tf.Tensor) -> Any:
            converted = tf.autograph.to_graph(probe.function)
            return tf.vectorized_map(lambda example: converted(**example), tensors, warn=True)

        graph = mapped.get_concrete_function(**{name: tf.TensorSpec(v.shape, v.dtype) for name, v in rows.items()})
        loops = executed_loops(graph, rows)
    except Exception:  # noqa: BLE001 - whatever it fails with, it has no graph
        return None
    finally:
        logger.removeHandler(handler)
    example = {name: value[0] for name, value in rows.items()}
    unbatched = executed_loops(lambda **given: vectorized.function(given), example)
    types = op_types(vectorized.function.graph.as_graph_def())
    warned = {op for text in said for op in re.findall(r"Using a while_loop for converting (\w+)", text)}
    return set(looping_ops(loops, unbatched, types)), warned


def main(groups: Sequence[str]) -> None:
    """Print what is named and what loops, by group; all groups if none is named."""
    print(f"{'functions':<14}{'number':>7}{'loop':>6}{'named':>7}{'precision':>11}{'recall':>8}", flush=True)
    n_stock, n_failed, n_loop, n_warned = 0, 0, 0, 0
    for group in groups or GROUPS:
        module = GROUPS[group]
        said: set[tuple[str, str]] = set()
        true: set[tuple[str, str]] = set()
        for probe in module.PROBES:
            vectorized = built(probe)
            said |= {(probe.name, record.op) for record in vectorized.certificate.looped}
            true |= {(probe.name, op) for op in looping(vectorized)}
            if probe.lengths:
                continue
            n_stock += 1
            stock = _stock(probe, vectorized)
            if stock is None:
                n_failed += 1
            else:
                n_loop += len(stock[0])
                n_warned += len(stock[0] & stock[1])
        right = len(said & true)
        precision, recall = right / len(said) if said else 1.0, right / len(true) if true else 1.0
        print(
            f"{group:<14}{len(module.PROBES):>7}{len(true):>6}{len(said):>7}{precision:>11.2f}{recall:>8.2f}",
            flush=True,
        )
    print(
        f"tf.vectorized_map(warn=True): of {n_stock} functions it fails on {n_failed}; in the others "
        f"{n_loop} ops loop, of which it warns of {n_warned}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])

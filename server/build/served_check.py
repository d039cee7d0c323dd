"""Checking every bucket as it will be served: in its mode, from the written file.

The vectorizer has checked the graphs as TensorFlow functions. A session optimizes them in its own way, and XLA
compiles other kernels, which also differ in what they refuse: it answers a look-up past the end of a table from the
table's last row, where the function raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from server.artifact import PREDICT, ExecutionMode
from server.build.footprint import Footprint
from server.build.forms import Form
from server.engine._session import GraphSession
from vectorizer import AnswerBits, Bucket, ParityError, ParityRecord, RunBatch, Vectorized, verify_bucket
from vectorizer.probes import Probe
from vectorizer.vectorized import pad_example, run_concrete, shape_in

__all__ = ["ServedCheck", "check_served"]

#: Refused examples that are tried on each XLA bucket. Each costs two calls that fail.
_MAX_REFUSED = 8
#: How long a bucket's rows are moved about, seconds, to see whether slot or neighbours change their bits. A few batches
#: are run however long they take.
_MOVING_S = 0.5


@dataclass
class ServedCheck:
    """What was found: the check of each bucket, the bits, and the buckets that answer otherwise, with why."""

    parity: dict[Bucket, ParityRecord] = field(default_factory=dict)
    bits: AnswerBits = field(default_factory=AnswerBits)
    unfaithful: dict[Bucket, str] = field(default_factory=dict)


def check_served(
    vectorized: Vectorized,
    saved_model: Path,
    chosen: Mapping[Bucket, ExecutionMode],
    *,
    tolerance: float | None,
    entry: str = PREDICT,
    footprint: Footprint | None = None,
) -> ServedCheck:
    """Check every bucket in its mode.

    ``chosen`` maps buckets to their mode, whose form is in ``saved_model``. ``footprint`` is told
    how much memory they take together.
    """
    input_names = list(vectorized.function.inputs)
    output_names = [name for output in vectorized.outputs for name in (output.name, *output.length_names.values())]
    sessions: dict[tuple[str, int], list[tuple[Bucket, ExecutionMode]]] = {}
    for bucket, mode in chosen.items():
        sessions.setdefault((mode.executor, mode.intra_op_threads), []).append((bucket, mode))
    checked = ServedCheck()
    for (executor, threads), members in sessions.items():
        with ExitStack() as opened, (footprint or Footprint()).watching():
            session = GraphSession(saved_model, executor=executor, intra_op_threads=threads)
            opened.callback(session.close)
            for bucket, mode in members:
                call = session.callable(
                    Form.of(bucket, mode, entry=entry).signature, inputs=input_names, outputs=output_names
                )

                def run(inputs: Mapping[str, np.ndarray], call: Any = call) -> dict[str, np.ndarray]:
                    return dict(zip(output_names, call(*(inputs[name] for name in input_names)), strict=True))

                try:
                    checked.parity[bucket] = verify_bucket(
                        vectorized.function,
                        vectorized.axes,
                        vectorized.outputs,
                        bucket=bucket,
                        run=run,
                        probes=vectorized.probes,
                        tolerance=tolerance,
                        bits=checked.bits,
                        moving_s=_MOVING_S,
                    )
                except ParityError as error:
                    checked.unfaithful[bucket] = str(error)
                    continue
                if mode.compiler == "xla" and _answers_what_the_graph_refuses(vectorized, bucket, run):
                    checked.unfaithful[bucket] = "it answers examples that the function refuses"
    return checked


def _answers_what_the_graph_refuses(vectorized: Vectorized, bucket: Bucket, run: RunBatch) -> bool:
    fitting = [
        probe
        for probe in vectorized.refused
        if all(true <= size for true, size in zip(probe.lengths, bucket.lengths, strict=True))
    ]
    graph = run_concrete(vectorized.graphs[bucket])
    for probe in fitting[:_MAX_REFUSED]:
        feeds = _full_batch(vectorized, bucket, probe)
        if _raises(graph, feeds) and not _raises(run, feeds):
            return True
    return False


def _raises(run: RunBatch, feeds: Mapping[str, np.ndarray]) -> bool:
    try:
        run(feeds)
    except tf.errors.OpError:
        return True
    return False


def _full_batch(vectorized: Vectorized, bucket: Bucket, probe: Probe) -> dict[str, np.ndarray]:
    return {
        name: np.stack([pad_example(probe.example[name], shape_in(name, spec, vectorized.axes, bucket))] * bucket.rows)
        for name, spec in vectorized.function.inputs.items()
    }

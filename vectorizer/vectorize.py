"""A function of one example -> batched graphs, one for each bucket, checked against it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter
from vectorizer.batch_dimension import check_rows_are_independent
from vectorizer.batched_graph import batched_graph, padded_body
from vectorizer.buckets import bucket_sizes
from vectorizer.certificate import Certificate, ParityRecord
from vectorizer.conversions import OpKey
from vectorizer.converters import converters as own_converters
from vectorizer.converters.partitions import Partitioning
from vectorizer.derivatives import Derivative, Setting, compile_derivatives
from vectorizer.effects import refuse_effects
from vectorizer.errors import DeclarationError
from vectorizer.inputs import check_inputs
from vectorizer.lengths import Length, length_axes
from vectorizer.loops import count_loops
from vectorizer.op_records import merge_log, op_records
from vectorizer.output_dims import output_dims
from vectorizer.probes import make_probes
from vectorizer.source import SourceLines
from vectorizer.strictness import refuse_looped
from vectorizer.trace import trace_example
from vectorizer.vectorized import Bucket, Vectorized, run_concrete
from vectorizer.verify import verify_bucket

__all__ = ["Progress", "vectorize"]

#: Called as ``progress(stage, done, total)``; stages are ``trace``, ``vectorize``, ``check`` and
#: ``derive``.
Progress = Callable[[str, int, int], None]


def vectorize(
    fn: Callable[..., Any],
    *,
    inputs: Mapping[str, tf.TensorSpec],
    buckets: str | Sequence[int] = "auto",
    lengths: Mapping[str, Length] | None = None,
    allow_looped: Collection[str] = (),
    tolerance: float | None = None,
    examples: Sequence[Mapping[str, Any]] = (),
    derivatives: Sequence[Derivative] = (),
    seed: int = 0,
    partitioned: bool = False,
    converters: Mapping[str, Converter] | None = None,
    progress: Progress | None = None,
    name: str | None = None,
    lines: SourceLines | None = None,
) -> Vectorized:
    """Compile a function of one example into batched graphs and check every one of them.

    ``fn`` is a plain Python function (autograph is applied), a ``tf.function``, a SavedModel's signature, or what is
    written for batches: a Keras model, or a ``BatchFunction``. ``inputs`` describe ONE example; a None dimension needs
    an entry in ``lengths``. ``allow_looped`` names op types that may run once for each row. ``examples`` are checked
    besides random and edge inputs.
    ``partitioned`` makes, besides, a second graph of each bucket with loops or branches that may be faster on the rows
    that are in them alone (``Vectorized.partitioned``): which one is, depends on the data, and is for who runs them
    to measure.
    ``derivatives`` are compiled for the same buckets.
    ``converters`` by op type go before the known ones; what they make is checked like everything else.
    ``name`` is what messages and the certificate call the function, and ``lines`` are the places of its ops: for a
    SavedModel's signature, ``saved_source`` reads both from the file.

    Shapes: bucket n's graph takes ``[n, *s]`` for an input of shape ``s`` and gives ``[n, *t]`` for an output.
    Errors: TraceError, DeclarationError, BatchDimensionError, SideEffectError, LoopedOpError, ConversionError,
        ProbeError, ParityError.
    Source: Agarwal, "Static Automatic Batching In TensorFlow", ICML 2019.
    """
    report = progress or _no_progress
    sizes = bucket_sizes(buckets)
    if isinstance(allow_looped, str):
        raise DeclarationError(f"allow_looped: expected op types in a list, got {allow_looped!r}")
    check_inputs(inputs)
    axes = length_axes(inputs, lengths or {})
    report("trace", 0, 1)
    function = trace_example(fn, inputs, name=name, lines=lines)
    refuse_effects(function.graph, function.name, where=function.where)
    report("trace", 1, 1)

    grid = [Bucket(rows=rows, lengths=padded) for padded in product(*(axis.buckets for axis in axes)) for rows in sizes]
    bodies = {padded: padded_body(function, axes, padded) for padded in dict.fromkeys(b.lengths for b in grid)}
    known = {**own_converters(), **(converters or {})}
    graphs: dict[Bucket, Any] = {}
    kinds: dict[OpKey, tuple[Any, str | None]] = {}
    loops_unbatched = count_loops(function.graph.as_graph_def())
    loops_batched = 0
    may_partition: list[Bucket] = []
    for done, bucket in enumerate(grid):
        report("vectorize", done, len(grid))
        control_flow = Partitioning(does=False)
        graphs[bucket], log = batched_graph(bodies[bucket.lengths], bucket, known, control_flow=control_flow)
        if control_flow.n_places:
            may_partition.append(bucket)
        merge_log(kinds, log)
        refuse_looped(function, log, allow_looped)
        n_loops = count_loops(graphs[bucket].graph.as_graph_def())
        loops_batched = max(loops_batched, n_loops)
    report("vectorize", len(grid), len(grid))

    probes, refused = make_probes(function, axes, examples=examples, seed=seed)
    check_rows_are_independent(function, probes, tolerance=tolerance)
    outputs = output_dims(function, axes, probes)
    parity: list[ParityRecord] = []
    for done, bucket in enumerate(grid):
        report("check", done, len(grid))
        parity.append(
            verify_bucket(
                function,
                axes,
                outputs,
                bucket=bucket,
                run=run_concrete(graphs[bucket]),
                probes=probes,
                tolerance=tolerance,
            )
        )
    second = {}
    for bucket in may_partition if partitioned else ():
        second[bucket], _ = batched_graph(bodies[bucket.lengths], bucket, known, control_flow=Partitioning())
        run = run_concrete(second[bucket])
        verify_bucket(function, axes, outputs, bucket=bucket, run=run, probes=probes, tolerance=tolerance)
    report("check", len(grid), len(grid))
    certificate = Certificate(
        function=function.name,
        tensorflow_version=tf.__version__,
        ops=tuple(op_records(function, kinds)),
        loops_unbatched=loops_unbatched,
        loops_batched=loops_batched,
        parity=tuple(parity),
        n_probes_refused=len(refused),
        tolerance={output.dtype.name: output.tolerance(tolerance) for output in outputs},
    )
    vectorized = Vectorized(
        function=function,
        axes=axes,
        outputs=outputs,
        graphs=graphs,
        partitioned=second,
        probes=tuple(probes),
        refused=tuple(refused),
        certificate=certificate,
    )
    vectorized.derivatives = compile_derivatives(
        derivatives,
        vectorized,
        Setting(bodies=bodies, converters=known, allow_looped=allow_looped, tolerance=tolerance, seed=seed),
        progress=lambda done, total: report("derive", done, total),
    )
    return vectorized


def _no_progress(_stage: str, _done: int, _total: int) -> None:
    """Nobody is watching."""

"""A function of one example -> batched graphs, one for each bucket, checked against it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter
from vectorizer.agreement import AnswerBits
from vectorizer.batch_dimension import check_rows_are_independent
from vectorizer.batched_graph import batched_graph, padded_body
from vectorizer.buckets import bucket_sizes
from vectorizer.certificate import Certificate, ParityRecord
from vectorizer.converters import converters as own_converters
from vectorizer.converters.partitions import Partitioning
from vectorizer.derivatives import Derivative, Setting, compile_derivatives
from vectorizer.effects import refuse_effects
from vectorizer.errors import ConversionError, DeclarationError, LoopedOpError
from vectorizer.hidden_loops import hidden_loops
from vectorizer.inputs import check_inputs
from vectorizer.lengths import Length, length_axes
from vectorizer.loops import count_loops
from vectorizer.not_for_xla import not_for_xla
from vectorizer.op_records import OpAccount
from vectorizer.output_dims import output_dims
from vectorizer.own_batch import OwnBatch, takes_batches_of
from vectorizer.probes import make_probes
from vectorizer.seeds import has_random_ops, seeded
from vectorizer.source import SourceLines
from vectorizer.strictness import refuse_looped
from vectorizer.trace import ExampleFunction, trace_example
from vectorizer.vectorized import Bucket, Vectorized, run_concrete
from vectorizer.verify import verify_bucket, verify_refusals

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
    random: str = "seeded",
    outputs: Sequence[str] | None = None,
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
    ``random="seeded"`` gives a function that draws random numbers one more input, an int64 ``seed`` for each example:
    the same seed gives the same answer in any batch. ``random="refuse"`` refuses such a function.
    ``outputs`` are the names of its outputs in the order in which answers have them; None keeps the function's own,
    which is by name for a SavedModel's signature.

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
    function = trace_example(fn, inputs, name=name, lines=lines, outputs=outputs)
    if random not in ("seeded", "refuse"):
        raise DeclarationError(f"random: expected 'seeded' or 'refuse', got {random!r}")
    if random == "seeded" and has_random_ops(function):
        if function.batch is not None:
            raise DeclarationError(
                f"{function.name} was written for batches and draws random numbers, so that it can't be shown to "
                "treat each row alone: give a function of one example"
            )
        function = seeded(function)
    refuse_effects(function.graph, function.name, where=function.where)
    report("trace", 1, 1)

    grid = [Bucket(rows=rows, lengths=padded) for padded in product(*(axis.buckets for axis in axes)) for rows in sizes]
    bodies = {padded: padded_body(function, axes, padded) for padded in dict.fromkeys(b.lengths for b in grid)}
    made = _Batching(function, bodies=bodies, converters=converters or {}, allow_looped=allow_looped)
    may_partition = []
    for done, bucket in enumerate(grid):
        report("vectorize", done, len(grid))
        if made.add(bucket):
            may_partition.append(bucket)
    report("vectorize", len(grid), len(grid))

    probes = make_probes(function, axes, examples=examples, seed=seed)
    check_rows_are_independent(function, probes.ordinary, tolerance=tolerance)
    told = {name for graph in made.graphs.values() for name in graph.structured_outputs}
    described = output_dims(function, axes, probes.answered, told=told)
    bits = AnswerBits()
    check = partial(verify_bucket, function, axes, described, probes=probes.answered, tolerance=tolerance)
    parity: list[ParityRecord] = []
    for done, bucket in enumerate(grid):
        report("check", done, len(grid))
        run = run_concrete(made.graphs[bucket])
        parity.append(check(bucket=bucket, run=run, bits=bits))
        if function.has_checks:
            verify_refusals(function, axes, bucket=bucket, run=run, probes=probes.answered, refused=probes.refused)
    second = {}
    for bucket in may_partition if partitioned else ():
        second[bucket] = made.partitioned(bucket)
        check(bucket=bucket, run=run_concrete(second[bucket]))
    report("check", len(grid), len(grid))
    certificate = Certificate(
        function=function.name,
        tensorflow_version=tf.__version__,
        ops=made.account.records(function),
        loops_unbatched=count_loops(function.graph.as_graph_def()),
        loops_batched=made.n_loops,
        parity=tuple(parity),
        n_probes_refused=len(probes.refused),
        probes=probes.counts(),
        bitwise_groups=bits.groups(),
        not_for_xla=tuple(sorted(made.not_for_xla)),
        sizes_known=made.are_for_xla,
        tolerance={output.dtype.name: output.tolerance(tolerance) for output in described},
    )
    vectorized = Vectorized(
        function=function,
        axes=axes,
        outputs=described,
        graphs=made.graphs,
        partitioned=second,
        probes=probes.answered,
        refused=probes.refused,
        certificate=certificate,
        is_for_xla=made.are_for_xla,
    )
    vectorized.derivatives = compile_derivatives(
        derivatives,
        vectorized,
        Setting(bodies=bodies, converters=made.known, allow_looped=allow_looped, tolerance=tolerance, seed=seed),
        progress=lambda done, total: report("derive", done, total) if derivatives else None,
    )
    return vectorized


class _Batching:
    """The batched graphs as they are made: each is refused at once if something in it would run once for each row."""

    def __init__(
        self,
        function: ExampleFunction,
        *,
        bodies: Mapping[tuple[int, ...], ExampleFunction],
        converters: Mapping[str, Converter],
        allow_looped: Collection[str],
    ) -> None:
        own = own_converters()
        self.graphs: dict[Bucket, Any] = {}
        self.account = OpAccount(own=own, given=converters)
        #: Op types in any of them that XLA drops or computes otherwise.
        self.not_for_xla: frozenset[str] = frozenset()
        #: The largest number of loops in any graph.
        self.n_loops = 0
        #: False if one has sizes that are known only when it runs.
        self.are_for_xla = True
        self._function = function
        #: True from the first bucket on that could not be converted and did not need to be.
        self._in_own_batches = False
        self._bodies = bodies
        #: All converters, the caller's before ours.
        self.known = {**own, **converters}
        self._allow_looped = allow_looped

    def add(self, bucket: Bucket) -> bool:
        """Make a bucket's graph; return True if it has loops or branches that can be partitioned."""
        control_flow = Partitioning(does=False)
        self.graphs[bucket] = self._made(bucket, control_flow)
        graph = self.graphs[bucket].graph
        self.n_loops = max(self.n_loops, count_loops(graph.as_graph_def()))
        self.not_for_xla |= not_for_xla(graph)
        return bool(control_flow.n_places)

    def partitioned(self, bucket: Bucket) -> Any:
        """Return the bucket's graph with its loops and branches partitioned."""
        return self._made(bucket, Partitioning())

    def _made(self, bucket: Bucket, control_flow: Partitioning) -> Any:
        body = self._bodies[bucket.lengths]
        if not takes_batches_of(body, bucket):
            return self._converted(body, bucket, control_flow)
        if not self._in_own_batches:
            try:
                return self._converted(body, bucket, control_flow)
            except (ConversionError, LoopedOpError):
                self._in_own_batches = True
        graph, _ = batched_graph(body, bucket, self.known, convert=OwnBatch(body))
        self.account.add_own_batch(graph.graph)
        return graph

    def _converted(self, body: ExampleFunction, bucket: Bucket, control_flow: Partitioning) -> Any:
        graph, log = batched_graph(body, bucket, self.known, control_flow=control_flow)
        hidden = hidden_loops(graph.graph.as_graph_def(), body.graph.as_graph_def(), log)
        looped = {**hidden, **log.looped()}
        self.account.add(log, looped)
        refuse_looped(self._function, looped, self._allow_looped)
        self.are_for_xla &= log.is_for_xla
        return graph


def _no_progress(_stage: str, _done: int, _total: int) -> None:
    """Nobody is watching."""

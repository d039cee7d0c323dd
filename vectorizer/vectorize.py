"""A function of one example -> batched graphs, one for each bucket, checked against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, convert_rows
from vectorizer.certificate import Certificate, OpClass, OpRecord, ParityRecord
from vectorizer.conversions import ConversionLog, OpKey, op_key
from vectorizer.converters import converters as own_converters
from vectorizer.effects import refuse_effects, walk_ops
from vectorizer.errors import ConversionError, DeclarationError, LoopedOpError, VectorizerError
from vectorizer.inputs import check_inputs
from vectorizer.lengths import Axis, Length, length_axes
from vectorizer.loops import count_loops
from vectorizer.probes import make_probes
from vectorizer.source import SourceLines
from vectorizer.trace import ExampleFunction, trace_example
from vectorizer.vectorized import Bucket, Vectorized, run_concrete, shape_in
from vectorizer.verify import output_dims, verify_bucket

__all__ = ["AUTO_BUCKETS", "Progress", "vectorize"]

#: What ``buckets="auto"`` compiles: powers of two, as every step up may only double the padding.
AUTO_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
_MOST_PLACES = 5

#: Called as ``progress(stage, done, total)``; stages are ``trace``, ``vectorize`` and ``check``.
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
    seed: int = 0,
    converters: Mapping[str, Converter] | None = None,
    progress: Progress | None = None,
    name: str | None = None,
    lines: SourceLines | None = None,
) -> Vectorized:
    """Compile a function of one example into batched graphs and check every one of them.

    ``fn`` is a plain Python function (autograph is applied), a ``tf.function``, a Keras model or a SavedModel's
    signature. ``inputs`` describe ONE example; a None dimension needs an entry in ``lengths``. ``allow_looped``
    names op types that may run once for each row. ``examples`` are checked besides random and edge inputs.
    ``converters`` by op type go before the known ones; what they make is checked like everything else.
    ``name`` is what messages and the certificate call the function, and ``lines`` are the places of its ops: for a
    SavedModel's signature, ``saved_source`` reads both from the file.

    Shapes: bucket n's graph takes ``[n, *s]`` for an input of shape ``s`` and gives ``[n, *t]`` for an output.
    Errors: TraceError, DeclarationError, SideEffectError, LoopedOpError, ConversionError, ProbeError, ParityError.
    Source: Agarwal, "Static Automatic Batching In TensorFlow", ICML 2019.
    """
    report = progress or _no_progress
    sizes = _bucket_sizes(buckets)
    if isinstance(allow_looped, str):
        raise DeclarationError(f"allow_looped: expected op types in a list, got {allow_looped!r}")
    check_inputs(inputs)
    axes = length_axes(inputs, lengths or {})
    report("trace", 0, 1)
    function = trace_example(fn, inputs, name=name, lines=lines)
    refuse_effects(function.graph, function.name, where=function.where)
    report("trace", 1, 1)

    grid = [Bucket(rows=rows, lengths=padded) for padded in product(*(axis.buckets for axis in axes)) for rows in sizes]
    bodies = {padded: _padded_body(function, axes, padded) for padded in dict.fromkeys(b.lengths for b in grid)}
    known = {**own_converters(), **(converters or {})}
    graphs: dict[Bucket, Any] = {}
    kinds: dict[OpKey, tuple[Any, str | None]] = {}
    loops_unbatched = count_loops(function.graph.as_graph_def())
    loops_batched = 0
    for done, bucket in enumerate(grid):
        report("vectorize", done, len(grid))
        graphs[bucket], log = _batch(bodies[bucket.lengths], bucket, known)
        _merge(kinds, log)
        _refuse_looped(function, log, allow_looped)
        n_loops = count_loops(graphs[bucket].graph.as_graph_def())
        loops_batched = max(loops_batched, n_loops)
    report("vectorize", len(grid), len(grid))

    probes, refused = make_probes(function, axes, examples=examples, seed=seed)
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
    report("check", len(grid), len(grid))
    certificate = Certificate(
        function=function.name,
        tensorflow_version=tf.__version__,
        ops=tuple(_op_records(function, kinds)),
        loops_unbatched=loops_unbatched,
        loops_batched=loops_batched,
        parity=tuple(parity),
        n_probes_refused=len(refused),
        tolerance={output.dtype.name: output.tolerance(tolerance) for output in outputs},
    )
    return Vectorized(
        function=function,
        axes=axes,
        outputs=outputs,
        graphs=graphs,
        probes=tuple(probes),
        refused=tuple(refused),
        certificate=certificate,
    )


def _no_progress(_stage: str, _done: int, _total: int) -> None:
    """Nobody is watching."""


def _bucket_sizes(buckets: str | Sequence[int]) -> tuple[int, ...]:
    if buckets == "auto":
        return AUTO_BUCKETS
    if isinstance(buckets, str) or not isinstance(buckets, Collection):
        raise DeclarationError(f"buckets: expected 'auto' or batch sizes, got {buckets!r}")
    if not buckets or any(not _is_size(size) for size in buckets):
        raise DeclarationError(f"buckets: expected batch sizes of at least 1, got {tuple(buckets)}")
    return tuple(sorted(set(buckets)))


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 1


def _padded_body(function: ExampleFunction, axes: Sequence[Axis], lengths: tuple[int, ...]) -> ExampleFunction:
    """Trace the function at padded sizes: its shapes are then known inside too, so that XLA can compile it."""
    if not axes:
        return function
    bucket = Bucket(rows=1, lengths=lengths)
    return trace_example(
        function.target,
        {name: tf.TensorSpec(shape_in(name, spec, axes, bucket), spec.dtype) for name, spec in function.inputs.items()},
        name=function.name,
        lines=function.lines,
    )


def _batch(body: ExampleFunction, bucket: Bucket, known: Mapping[str, Converter]) -> tuple[Any, ConversionLog]:
    """Trace the batched graph of one bucket."""
    log = ConversionLog()

    def batched(**tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        arguments = [tensors[name] for name in body.input_names]
        outputs = convert_rows(body.concrete, arguments, rows=bucket.rows, converters=known, log=log)
        return {name: tf.identity(output) for name, output in zip(body.output_names, outputs, strict=True)}

    specs = {
        name: tf.TensorSpec([bucket.rows, *spec.shape], spec.dtype, name=name) for name, spec in body.inputs.items()
    }
    try:
        graph = tf.function(batched, autograph=False).get_concrete_function(**specs)
    except VectorizerError:
        raise
    except Exception as error:
        op = getattr(error, "op", None)
        place = f"op {op.type} ({body.where(op)})" if op is not None else "the graph"
        raise ConversionError(
            f"{body.name}: {place} could not be vectorized for {bucket}: {type(error).__name__}: {error}"
        ) from error
    return graph, log


def _merge(kinds: dict[OpKey, tuple[Any, str | None]], log: ConversionLog) -> None:
    for key, op in log.converted().items():
        kinds.setdefault(key, (op, None))
    kinds.update(log.looped())


def _refuse_looped(function: ExampleFunction, log: ConversionLog, allow_looped: Collection[str]) -> None:
    refused: dict[str, dict[str, str]] = {}
    for op, reason in log.looped().values():
        if op.type not in allow_looped:
            refused.setdefault(op.type, {})[function.where(op)] = reason
    if not refused:
        return
    lines = [
        f"op {op_type} ({', '.join(list(places)[:_MOST_PLACES])}) would run once for each row: "
        f"{next(iter(places.values()))}"
        for op_type, places in refused.items()
    ]
    raise LoopedOpError(
        f"{function.name}: {'; '.join(lines)}. Rewrite it with ops that have a batched form, or allow it: "
        f"allow_looped={sorted(refused)}",
        ops={op_type: tuple(places) for op_type, places in refused.items()},
    )


def _op_records(function: ExampleFunction, kinds: Mapping[OpKey, tuple[Any, str | None]]) -> Iterator[OpRecord]:
    """Group the ops of the function by type and treatment, in the order of the graph."""
    counts: Counter[tuple[str, OpClass, str | None]] = Counter()
    places: dict[tuple[str, OpClass, str | None], dict[str, None]] = {}

    def add(op: Any, kind: OpClass, reason: str | None) -> None:
        key = (op.type, kind, reason)
        counts[key] += 1
        places.setdefault(key, {})[function.where(op)] = None

    converted: set[tuple[str, str, str]] = set()
    for op, reason in kinds.values():
        signature = (op.type, op.name, function.where(op))
        if signature in converted:
            continue  # the same op in the body of another length
        converted.add(signature)
        add(op, OpClass.LOOPED if reason else OpClass.VECTORIZED, reason)
    for op in walk_ops(function.graph):
        if op.type in ("Placeholder", "NoOp") or op_key(op) in kinds:
            continue
        if (op.type, op.name, function.where(op)) not in converted:
            add(op, OpClass.INVARIANT, None)
    for (op_type, kind, reason), count in counts.items():
        yield OpRecord(
            op=op_type,
            kind=kind,
            count=count,
            where=tuple(list(places[op_type, kind, reason])[:_MOST_PLACES]),
            reason=reason,
        )

"""A declared derivative -> batched graphs, one for each bucket, checked against the looped reference."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import Converter
from vectorizer.batched_graph import Conversion, batched_graph
from vectorizer.certificate import Certificate, ParityRecord
from vectorizer.conversions import ConversionLog
from vectorizer.derivatives.body import derivative_body, pullback_body, repeated_body
from vectorizer.derivatives.choice import Choice, choose
from vectorizer.derivatives.declaration import COTANGENT, Derivative
from vectorizer.derivatives.memory import default_parallel, pullback_bytes
from vectorizer.derivatives.reference import reference_probes, verify_smooth
from vectorizer.errors import ConversionError
from vectorizer.hidden_loops import hidden_loops
from vectorizer.lengths import Axis
from vectorizer.loops import count_loops
from vectorizer.not_for_xla import not_for_xla
from vectorizer.op_records import OpAccount
from vectorizer.strictness import refuse_looped
from vectorizer.trace import ExampleFunction
from vectorizer.vectorized import Bucket, Vectorized, run_concrete

__all__ = ["Setting", "compile_derivatives"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How the function itself was compiled: its derivatives are compiled alike. ``bodies`` are by padded lengths."""

    bodies: Mapping[tuple[int, ...], ExampleFunction]
    converters: Mapping[str, Converter]
    allow_looped: Collection[str]
    tolerance: float | None
    seed: int


def compile_derivatives(
    derivatives: Sequence[Derivative],
    base: Vectorized,
    setting: Setting,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Vectorized]:
    """Compile every derivative for the buckets of the function itself.

    Errors: DeclarationError, LoopedOpError, ConversionError, ParityError.
    """
    choices = choose(derivatives, base.function, base.axes, base.outputs)
    # All of them before any is checked: TensorFlow's own gradient changes the loops in the graph that it is taken of.
    built = []
    for done, choice in enumerate(choices):
        progress(done, len(choices))
        built.append(_built(choice, base, setting))
    made = {}
    for choice, graphs in zip(choices, built, strict=True):
        made[choice.name] = _checked(choice, base, setting, graphs)
        made[choice.name].derivative = Derivative(
            kind=choice.kind,
            output=choice.output.name,
            wrt=tuple(source.name for source in choice.sources),
            max_parallel=choice.max_parallel,
            name=choice.name,
        )
    progress(len(choices), len(choices))
    return made


def _built(choice: Choice, base: Vectorized, setting: Setting) -> _Made:
    plans = {lengths: _plan(choice, body, base.axes, lengths) for lengths, body in setting.bodies.items()}
    try:
        return _graphs(choice, base, setting, plans, is_shared=True)
    except ConversionError as error:
        if not (isinstance(error.__cause__, NotImplementedError) and choice.kind in ("jacobian", "hessian")):
            raise
        return _graphs(choice, base, setting, plans, is_shared=False)


def _checked(choice: Choice, base: Vectorized, setting: Setting, made: _Made) -> Vectorized:
    axes = _axes(choice, base.axes)
    bodies, graphs, plans = made.bodies, made.graphs, made.plans
    function = _unpadded(next(iter(bodies.values())), choice, base)
    probes, refused = reference_probes(choice, base, seed=setting.seed)
    parity: list[ParityRecord] = []
    kinks = 0
    for bucket, graph in graphs.items():
        record, n_kinks = verify_smooth(
            function,
            choice,
            base,
            axes,
            bucket=bucket,
            run=run_concrete(graph),
            probes=probes,
            tolerance=setting.tolerance,
        )
        parity.append(record)
        kinks = max(kinks, n_kinks)
    chunked = any(at_once < plans[lengths].n_elements for lengths, at_once in bodies)
    certificate = Certificate(
        function=function.name,
        tensorflow_version=tf.__version__,
        ops=made.account.records(next(iter(bodies.values()))),
        loops_unbatched=max(plan.n_loops for plan in plans.values()) + chunked,
        loops_batched=made.loops_batched,
        parity=tuple(parity),
        not_for_xla=tuple(sorted(made.not_for_xla)),
        sizes_known=made.is_for_xla,
        n_probes_refused=len(refused) + kinks,
        tolerance={result.dtype.name: result.tolerance(setting.tolerance) for result in choice.results},
    )
    return Vectorized(
        function=function,
        axes=axes,
        outputs=choice.results,
        graphs=graphs,
        probes=tuple(probes),
        refused=tuple(refused),
        certificate=certificate,
        bare=choice.bare,
        is_for_xla=base.is_for_xla and made.is_for_xla,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """For one padded length: the output's shape, how many elements there are, how many rows times elements fit."""

    shape: tuple[int, ...]
    n_elements: int
    max_parallel: int
    n_loops: int

    def at_once(self, rows: int) -> int:
        """Elements to compute side by side in a bucket."""
        return min(self.n_elements, max(1, self.max_parallel // rows))


def _plan(choice: Choice, body: ExampleFunction, axes: Sequence[Axis], lengths: tuple[int, ...]) -> _Plan:
    size_of = dict(zip((axis.name for axis in axes), lengths, strict=True))

    def shape(dims: Sequence[int | Axis]) -> tuple[int, ...]:
        return tuple(dim if isinstance(dim, int) else size_of[dim.name] for dim in dims)

    single, cotangents = pullback_body(body, choice, shape=shape(choice.output.known_dims))
    differentiated = {
        "jacobian": [choice.output.known_dims],
        "hessian": [source.dims for source in choice.sources],
    }.get(choice.kind, [])
    n_elements = sum(int(np.prod(shape(dims), dtype=np.int64)) for dims in differentiated) if differentiated else 1
    return _Plan(
        shape=shape(choice.output.known_dims),
        n_elements=max(1, n_elements),
        max_parallel=choice.max_parallel or default_parallel(pullback_bytes(single.graph, cotangents)),
        n_loops=count_loops(single.graph.as_graph_def()),
    )


@dataclass(slots=True, kw_only=True)
class _Made:
    """The graphs of a derivative; bodies are by padded lengths and elements computed side by side."""

    plans: Mapping[tuple[int, ...], _Plan]
    bodies: dict[tuple[tuple[int, ...], int], ExampleFunction] = field(default_factory=dict)
    graphs: dict[Bucket, Any] = field(default_factory=dict)
    account: OpAccount
    loops_batched: int = 0
    is_for_xla: bool = True
    not_for_xla: frozenset[str] = frozenset()


def _graphs(
    choice: Choice, base: Vectorized, setting: Setting, plans: Mapping[tuple[int, ...], _Plan], *, is_shared: bool
) -> _Made:
    """Build all buckets' graphs. ``is_shared`` says whether the elements share one forward pass."""
    made = _Made(plans=plans, account=OpAccount(own=setting.converters))
    ways: dict[Any, Conversion | None] = {}
    for bucket in base.graphs:
        plan = plans[bucket.lengths]
        at_once = plan.at_once(bucket.rows)
        key = (bucket.lengths, at_once)
        if key not in made.bodies:
            log = ConversionLog()
            whole = setting.bodies[bucket.lengths]
            if is_shared:
                ways[key] = None
                made.bodies[key] = derivative_body(
                    whole, choice, shape=plan.shape, at_once=at_once, converters=setting.converters, log=log
                )
            else:
                made.bodies[key], repeated = repeated_body(
                    whole, choice, shape=plan.shape, at_once=at_once, converters=setting.converters, log=log
                )
                ways[key] = repeated.convert
            refuse_looped(made.bodies[key], log.looped(), setting.allow_looped)
            made.account.add(ConversionLog(), log.looped())
            made.is_for_xla &= log.is_for_xla
        body = made.bodies[key]
        made.graphs[bucket], log = batched_graph(body, bucket, setting.converters, convert=ways[key])
        batched = made.graphs[bucket].graph.as_graph_def()
        looped = {**hidden_loops(batched, body.graph.as_graph_def(), log), **log.looped()}
        refuse_looped(body, looped, setting.allow_looped)
        made.account.add(log, looped)
        made.is_for_xla &= log.is_for_xla
        made.not_for_xla |= not_for_xla(made.graphs[bucket].graph)
        made.loops_batched = max(made.loops_batched, count_loops(batched))
    return made


def _axes(choice: Choice, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Let a cotangent's variable dimensions follow the axes that the output's do."""
    if choice.kind != "vjp":
        return axes
    followed = [(dim.name, index) for index, dim in enumerate(choice.output.dims) if isinstance(dim, Axis)]
    return tuple(
        replace(axis, dims=(*axis.dims, *((COTANGENT, index) for name, index in followed if name == axis.name)))
        for axis in axes
    )


def _unpadded(body: ExampleFunction, choice: Choice, base: Vectorized) -> ExampleFunction:
    """Return the body with the inputs as callers give them: None where they vary."""
    inputs = dict(base.function.inputs)
    if choice.kind == "vjp":
        shape = [dim if isinstance(dim, int) else None for dim in choice.output.dims]
        inputs[COTANGENT] = tf.TensorSpec(shape, choice.output.dtype, name=COTANGENT)
    return replace(body, inputs=inputs)

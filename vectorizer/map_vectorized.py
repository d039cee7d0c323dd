"""``dataset.map(fn).batch(n)`` for tf.data, with one vectorized call for each batch.

Theory of operation. A pipeline that maps and then batches calls its function once for each element. Here the dataset is
batched first, and the function is compiled for that batch size, strictly: what would run once for each row is refused
by name. The last batch may be smaller: it is filled up with its first element and cut back, so that one graph serves
all and its shapes are known.

Source: Agarwal, "Static Automatic Batching In TensorFlow", ICML 2019, on input pipelines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter
from vectorizer.batched_graph import batched_graph
from vectorizer.converters import converters as own_converters
from vectorizer.effects import refuse_effects
from vectorizer.errors import DeclarationError
from vectorizer.hidden_loops import hidden_loops
from vectorizer.strictness import refuse_looped
from vectorizer.trace import trace_example
from vectorizer.vectorized import Bucket

__all__ = ["map_vectorized"]


def map_vectorized(
    dataset: tf.data.Dataset,
    fn: Callable[..., Any],
    batch_size: int,
    *,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
    deterministic: bool | None = None,
    allow_looped: Collection[str] = (),
    converters: Mapping[str, Converter] | None = None,
) -> tf.data.Dataset:
    """Return ``dataset.map(fn).batch(batch_size)``, computed by the batch.

    ``fn`` takes ONE element as ``Dataset.map`` passes it: a tuple's parts as arguments, anything else as one. It may
    return any structure of dense tensors. ``drop_remainder`` leaves out a last batch that is not full;
    ``num_parallel_calls`` and ``deterministic`` are those of ``Dataset.map``, for batches; ``allow_looped`` names op
    types that may run once for each row; ``converters`` by op type go before the known ones.

    Shapes: every element's shape is static; a result ``[*t]`` of one becomes ``[batch_size, *t]``.
    Errors: DeclarationError, TraceError, SideEffectError (random ops too: all rows would share a number),
        LoopedOpError, ConversionError. A row that raises ends the iteration, as in ``Dataset.map``.
    """
    if batch_size < 1:
        raise DeclarationError(f"batch_size: expected at least 1, got {batch_size}")
    element = dataset.element_spec
    specs = {f"element_{index}": spec for index, spec in enumerate(_checked(element))}
    results: list[Any] = []

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def arguments(leaves: Mapping[str, tf.Tensor]) -> tuple[Any, ...]:
        packed = tf.nest.pack_sequence_as(element, [leaves[name] for name in specs])
        return packed if isinstance(packed, tuple) else (packed,)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def flat(result: Any) -> tuple[tf.Tensor, ...]:
        results[:] = [_as_elements(result)]
        return tuple(tf.nest.flatten(results[0]))

    def example(**leaves: tf.Tensor) -> tuple[tf.Tensor, ...]:
        answers: tuple[tf.Tensor, ...] = flat(fn(*arguments(leaves)))
        return answers

    function = trace_example(example, specs, name=getattr(fn, "__qualname__", type(fn).__name__))
    refuse_effects(function.graph, function.name, where=function.where)
    known = {**own_converters(), **(converters or {})}
    graph, log = batched_graph(function, Bucket(rows=batch_size), known)
    hidden = hidden_loops(graph.graph.as_graph_def(), function.graph.as_graph_def(), log)
    refuse_looped(function, {**hidden, **log.looped()}, allow_looped)
    if graph.structured_outputs.keys() != set(function.output_names):
        raise DeclarationError(
            f"{function.name} returns tensors whose size differs from element to element, which have no place in a "
            "batch: pad them in the function"
        )
    structure = tf.nest.map_structure(lambda _: None, results[0])

    def mapped(*batch: Any) -> Any:
        leaves = tf.nest.flatten(batch)
        n_rows = tf.shape(leaves[0])[0]
        if not drop_remainder:
            leaves = _filled(leaves, n_rows, batch_size)
        given = {
            name: tf.ensure_shape(leaf, [batch_size, *spec.shape])
            for leaf, (name, spec) in zip(leaves, specs.items(), strict=True)
        }
        answers = graph(**given)
        rows = [answers[name] if drop_remainder else answers[name][:n_rows] for name in function.output_names]
        return tf.nest.pack_sequence_as(structure, rows)

    # The traced function reads what ``fn`` holds by handle only: it lives as long as the dataset.
    mapped.function = function  # type: ignore[attr-defined]
    return dataset.batch(batch_size, drop_remainder=drop_remainder).map(
        tf.autograph.experimental.do_not_convert(mapped),
        num_parallel_calls=num_parallel_calls,
        deterministic=deterministic,
    )


def _checked(element: Any) -> list[tf.TensorSpec]:
    leaves: list[tf.TensorSpec] = tf.nest.flatten(element)
    for index, spec in enumerate(leaves):
        if not isinstance(spec, tf.TensorSpec):
            raise DeclarationError(
                f"component {index} of the dataset's elements is a {type(spec).__name__}; make it dense"
            )
        if not spec.shape.is_fully_defined():
            raise DeclarationError(
                f"component {index} of the dataset's elements has the shape {spec.shape}: elements of a batch need one "
                "shape, which tf.ensure_shape or a padding in a map before this one can give them"
            )
    if not leaves:
        raise DeclarationError("the dataset's elements hold no tensors")
    return leaves


def _as_elements(result: Any) -> Any:
    """Return a result as ``Dataset.map`` takes it: lists and numbers are tensors, tuples and dicts are structure."""
    if isinstance(result, Mapping):
        return {key: _as_elements(value) for key, value in result.items()}
    if isinstance(result, tuple):
        parts = [_as_elements(value) for value in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if result is None or isinstance(result, tf.RaggedTensor | tf.SparseTensor):
        raise DeclarationError(f"the function returns a {type(result).__name__}: return dense tensors")
    return tf.convert_to_tensor(result)


def _filled(leaves: list[tf.Tensor], n_rows: tf.Tensor, batch_size: int) -> list[tf.Tensor]:
    """Repeat the first row until the batch is full. One that is, is not copied."""

    def fill() -> list[tf.Tensor]:
        return [tf.concat([leaf, tf.repeat(leaf[:1], batch_size - n_rows, axis=0)], axis=0) for leaf in leaves]

    filled: list[tf.Tensor] = tf.cond(tf.equal(n_rows, batch_size), lambda: leaves, fill)
    return filled

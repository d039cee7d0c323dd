"""One bucket's batched graph, traced from the graph of one example."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, convert_rows
from vectorizer.conversions import ConversionLog
from vectorizer.converters.differing import differing_converters
from vectorizer.converters.partitions import Partitioning, partitioning
from vectorizer.differing import lengths_beside
from vectorizer.errors import ConversionError, VectorizerError
from vectorizer.lengths import Axis
from vectorizer.seeds import seeded
from vectorizer.trace import ExampleFunction, trace_example
from vectorizer.vectorized import Bucket, shape_in

__all__ = ["Conversion", "batched_graph", "padded_body"]

#: ``(arguments, rows, converters, log)`` -> the outputs of all rows.
Conversion = Callable[[Sequence[tf.Tensor], int, Mapping[str, Converter], ConversionLog], list[Any]]


def padded_body(function: ExampleFunction, axes: Sequence[Axis], lengths: tuple[int, ...]) -> ExampleFunction:
    """Trace the function at padded sizes: its shapes are then known inside too, so that XLA can compile it."""
    if not axes:
        return function
    bucket = Bucket(rows=1, lengths=lengths)
    specs = {
        name: tf.TensorSpec(shape_in(name, spec, axes, bucket), spec.dtype)
        for name, spec in function.inputs.items()
        if name != function.seed_input
    }
    body = trace_example(
        function.target, specs, name=function.name, lines=function.target_lines, outputs=function.output_names
    )
    return body if function.seed_input is None else seeded(body, seed_input=function.seed_input)


def batched_graph(
    body: ExampleFunction,
    bucket: Bucket,
    known: Mapping[str, Converter],
    *,
    control_flow: Partitioning | None = None,
    convert: Conversion | None = None,
) -> tuple[Any, ConversionLog]:
    """Trace the batched graph of one bucket; the log tells how each op was converted.

    ``control_flow`` says whether loops and branches are masked or partitioned, and counts where that matters.
    ``convert`` computes the rows in another way than by converting the body.
    Shapes: for an output whose size depends on the example, the lengths [rows] are outputs too (``length_name``).
    Errors: ConversionError naming the op; whatever of ours a converter raised.
    """
    log = ConversionLog()

    def converted(arguments: Sequence[tf.Tensor], rows: int, *_: Any) -> list[Any]:
        return convert_rows(
            body.concrete, arguments, rows=rows, converters=known, for_differing=differing_converters(), log=log
        )

    def batched(**tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        arguments = [tensors[name] for name in body.input_names]
        outputs = (convert or converted)(arguments, bucket.rows, known, log)
        return {name: tf.identity(value) for name, value in lengths_beside(body.output_names, outputs).items()}

    specs = {
        name: tf.TensorSpec([bucket.rows, *spec.shape], spec.dtype, name=name) for name, spec in body.inputs.items()
    }
    try:
        with partitioning(control_flow or Partitioning(does=False)):
            graph = tf.function(batched, autograph=False).get_concrete_function(**specs)
    except VectorizerError:
        raise
    except Exception as error:
        # pfor checks the shapes of what a converter returned, and doesn't say whose it was: the last one's.
        op = getattr(error, "op", None) or (log.conversions[-1].op if log.conversions else None)
        place = f"op {op.type} ({body.where(op)})" if op is not None else "the graph"
        raise ConversionError(
            f"{body.name}: {place} could not be vectorized for {bucket}: {type(error).__name__}: {error}"
        ) from error
    return graph, log

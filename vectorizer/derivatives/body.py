"""The graph of one example that computes a derivative: what the vectorizer then batches like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter
from vectorizer.conversions import ConversionLog
from vectorizer.derivatives.basis import pull_each_element
from vectorizer.derivatives.choice import Choice
from vectorizer.derivatives.declaration import COTANGENT
from vectorizer.derivatives.inline import Inlined
from vectorizer.derivatives.places import BackwardPlaces
from vectorizer.derivatives.repeated import Repeated
from vectorizer.derivatives.tape import Recorded, record
from vectorizer.errors import ConversionError, VectorizerError
from vectorizer.trace import ExampleFunction

__all__ = ["derivative_body", "pullback_body", "repeated_body"]


def derivative_body(
    function: ExampleFunction,
    choice: Choice,
    *,
    shape: Sequence[int],
    at_once: int,
    converters: Mapping[str, Converter],
    log: ConversionLog,
) -> ExampleFunction:
    """Trace the derivative of a function whose shapes are all known, without a loop over its elements.

    Shapes: ``shape`` is the output's; ``at_once`` elements of a Jacobian or Hessian are computed side by side.
    Errors: ConversionError; what of ours a converter raised.
    """

    copied = Inlined()

    def derive(*example: tf.Tensor) -> list[tf.Tensor]:
        recorded = record(function, choice, example[: len(function.inputs)], shape=shape, copied=copied)
        if choice.kind == "vjp":
            return list(recorded.pull([example[-1]]))
        if choice.kind == "gradient":
            return list(recorded.pull([tf.ones_like(target) for target in recorded.targets]))
        pulled = pull_each_element(recorded, at_once=at_once, converters=converters, log=log)
        return [
            tf.reshape(block, [*target.shape, *source])
            for target, blocks in zip(recorded.targets, _by_target(pulled, recorded), strict=True)
            for block, source in zip(blocks, recorded.shapes, strict=True)
        ]

    inputs = dict(function.inputs)
    if choice.kind == "vjp":
        inputs[COTANGENT] = tf.TensorSpec(shape, choice.output.dtype, name=COTANGENT)
    return _traced(derive, function, copied, choice, inputs, tuple(result.name for result in choice.results))


def pullback_body(
    function: ExampleFunction, choice: Choice, *, shape: Sequence[int]
) -> tuple[ExampleFunction, list[tf.Tensor]]:
    """Trace one forward pass and one pullback, what one element of the derivative takes; return its cotangents too."""

    copied = Inlined()
    cotangents: list[tf.Tensor] = []

    def derive(*example: tf.Tensor) -> list[tf.Tensor]:
        recorded = record(function, choice, example, shape=shape, copied=copied)
        cotangents[:] = [tf.ones_like(target) for target in recorded.targets]
        return list(recorded.pull(cotangents))

    names = tuple(source.name for source in choice.sources)
    return _traced(derive, function, copied, choice, dict(function.inputs), names), cotangents


def repeated_body(
    function: ExampleFunction,
    choice: Choice,
    *,
    shape: Sequence[int],
    at_once: int,
    converters: Mapping[str, Converter],
    log: ConversionLog,
) -> tuple[ExampleFunction, Repeated]:
    """Trace a Jacobian or Hessian whose elements do not share their forward pass, and return how to batch it.

    Shapes, errors: as ``derivative_body``.
    """
    copied = Inlined()
    sources = tuple(
        function.inputs[s.name] if s.variable is None else tf.TensorSpec(s.variable.shape, s.dtype)
        for s in choice.sources
    )
    targets = sources if choice.kind == "hessian" else (tf.TensorSpec(shape, choice.output.dtype),)

    def pull(*given: tf.Tensor) -> list[tf.Tensor]:
        n = len(function.inputs)
        recorded = record(function, choice, given[:n], shape=shape, copied=copied)
        return list(recorded.pull(given[n:]))

    cotangents = {f"{COTANGENT}_{number}": target for number, target in enumerate(targets)}
    names = tuple(source.name for source in choice.sources)
    pulled = _traced(pull, function, copied, choice, {**function.inputs, **cotangents}, names)
    repeated = Repeated(pull=pulled, targets=targets, results=sources, at_once=at_once)

    def derive(*example: tf.Tensor) -> list[tf.Tensor]:
        made = repeated.convert([value[tf.newaxis] for value in example], 1, converters, log)
        return [tf.squeeze(value, 0) for value in made]

    results = tuple(result.name for result in choice.results)
    return _traced(derive, function, copied, choice, dict(function.inputs), results), repeated


def _by_target(pulled: Sequence[tf.Tensor], recorded: Recorded) -> list[list[tf.Tensor]]:
    """Split each source's ``[k, *s]`` into the targets' shares of k."""
    if len(recorded.targets) == 1:
        return [list(pulled)]
    sizes = [target.shape.num_elements() for target in recorded.targets]
    return [list(blocks) for blocks in zip(*(tf.split(value, sizes) for value in pulled), strict=True)]


def _traced(
    derive: Callable[..., list[tf.Tensor]],
    function: ExampleFunction,
    copied: Inlined,
    choice: Choice,
    inputs: Mapping[str, tf.TensorSpec],
    output_names: tuple[str, ...],
) -> ExampleFunction:
    name = f"{function.name}: {choice.kind} of {choice.output.name!r}"
    places = BackwardPlaces(function, copied)
    specs = {key: tf.TensorSpec(spec.shape, spec.dtype, name=key) for key, spec in inputs.items()}
    try:
        concrete = tf.function(derive, autograph=False).get_concrete_function(*specs.values())
    except VectorizerError:
        raise
    except LookupError as error:
        raise ConversionError(f"{name}: no gradient for an op: {_reason(error)}") from error
    except Exception as error:
        op: Any = getattr(error, "op", None)
        place = f"op {op.type} ({places.get(op) or function.where(op)})" if op is not None else "the graph"
        raise ConversionError(
            f"{name}: {place} could not be differentiated: {type(error).__name__}: {_reason(error)}"
        ) from error
    return ExampleFunction(
        name=name,
        concrete=concrete,
        inputs=specs,
        output_names=output_names,
        target=function,
        lines=places,
        seed_input=function.seed_input,
    )


def _reason(error: Exception) -> str:
    if "CustomGradient" in str(error):
        return (
            "it has a custom gradient that was not saved with it; write the SavedModel again with "
            "tf.saved_model.SaveOptions(experimental_custom_gradients=True)"
        )
    return " ".join(str(error).split())[:500]

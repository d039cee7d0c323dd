"""From whatever the user has to one graph of ONE example.

A plain function goes through autograph, so that ``if``, ``while`` and ``for`` on tensors work in it; a
``tf.function`` or a SavedModel signature is called as it is; a Keras model, which is written for batches, is
called with a batch of one whose leading dimension is taken off again. Restored functions are traced again where they
know less of their shapes than they are called with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tensorflow as tf

from vectorizer._pfor import called_graphs, cancellable
from vectorizer.batch_function import BatchFunction, of_keras_model
from vectorizer.checks import checks_in
from vectorizer.errors import DeclarationError, TraceError, VectorizerError
from vectorizer.retrace import knows_fewer_shapes, with_known_shapes
from vectorizer.source import SourceLines, source_line

__all__ = ["ExampleFunction", "named_outputs", "trace_example"]

_NOT_DENSE = (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)
#: The name of an output that the function returns bare.
SINGLE_OUTPUT = "output"


@dataclass(frozen=True, kw_only=True)
class ExampleFunction:
    """A traced function of one example.

    ``concrete`` takes the inputs positionally in the order of ``input_names`` and returns a tuple of tensors in
    the order of ``output_names``. ``name`` is what messages call it. ``target`` is what was traced, kept alive
    because a traced graph holds its variables only by handle. ``lines`` are the places of a restored target's ops.
    ``batch`` is what was given where that is a function of batches.
    ``seed_input`` is the input that random ops draw from, if it was added; ``seeded`` maps the names of the ops that do
    to the types of the user's ops that they stand for.
    """

    name: str
    concrete: Any
    inputs: Mapping[str, tf.TensorSpec]
    output_names: tuple[str, ...]
    target: Any
    lines: SourceLines | None = None
    batch: BatchFunction | None = None
    #: As the tracer was given them; ``lines`` may be those of a graph that was made of the traced one.
    target_lines: SourceLines | None = None
    seed_input: str | None = None
    seeded: Mapping[str, str] = field(default_factory=dict)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Input names, in order."""
        return tuple(self.inputs)

    @property
    def graph(self) -> Any:
        """The ``FuncGraph`` of one example."""
        return self.concrete.graph

    @property
    def variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the graph reads."""
        return tuple(self.concrete.variables)

    @property
    def has_checks(self) -> bool:
        """True if it has ops that do nothing but raise: asserts, checks of numerics."""
        return bool(checks_in(self.graph.get_operations(), called_graphs))

    def where(self, op: Any) -> str:
        """Return the line of the user's code that made ``op``, or the op's name if that is not known."""
        return source_line(op, self.lines)

    def __call__(self, example: Mapping[str, Any]) -> tuple[tf.Tensor, ...]:
        """Run one example; values are anything that TensorFlow converts."""
        return self._run(self.concrete, example)

    def named_batch(self, results: Any) -> dict[str, tf.Tensor]:
        """Name what ``batch`` returned, in the order of ``output_names``: its own may be another."""
        return _ordered(named_outputs(results, self.name), self.output_names, self.name)

    def stoppable(self) -> tuple[Callable[[Mapping[str, Any]], tuple[tf.Tensor, ...]], Callable[[], None]]:
        """Return the function for one call, and what stops that call from another thread."""
        concrete, cancel = cancellable(self.concrete)
        return partial(self._run, concrete), cancel

    def _run(self, concrete: Callable[..., Any], example: Mapping[str, Any]) -> tuple[tf.Tensor, ...]:
        arguments = [tf.convert_to_tensor(example[name], spec.dtype) for name, spec in self.inputs.items()]
        answers: tuple[tf.Tensor, ...] = tuple(concrete(*arguments))
        return answers


def trace_example(
    fn: Callable[..., Any],
    inputs: Mapping[str, tf.TensorSpec],
    *,
    name: str | None = None,
    lines: SourceLines | None = None,
    outputs: Sequence[str] | None = None,
) -> ExampleFunction:
    """Trace ``fn`` for one example. ``name`` is what messages call it; None takes its own.

    ``outputs`` are the names of its outputs in the order to keep; None keeps the function's.

    Shapes: ``inputs`` have no batch dimension; None marks a variable dimension.
    Errors: DeclarationError if an input is no TensorSpec or of unknown rank, or ``outputs`` are not the function's;
        TraceError with the user's own exception as its cause.
    """
    specs = {key: _named_spec(key, spec) for key, spec in inputs.items()}
    if not specs:
        raise DeclarationError("the function has no inputs: declare at least one as inputs={'x': tf.TensorSpec(...)}")
    name = name or _name_of(fn)
    batch = of_keras_model(fn) if _is_keras_model(fn) else fn if isinstance(fn, BatchFunction) else None
    call = batch or fn
    output_names: list[str] = []
    refusals: list[DeclarationError] = []

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def flatten(result: Any) -> tuple[tf.Tensor, ...]:
        try:
            named = _ordered(named_outputs(result, name), outputs, name)
        except DeclarationError as error:
            refusals.append(error)  # autograph raises a copy, with frames for a message
            raise
        output_names[:] = named
        tensors: tuple[tf.Tensor, ...] = tuple(named.values())
        return tensors

    def example(*tensors: tf.Tensor) -> tuple[tf.Tensor, ...]:
        flat: tuple[tf.Tensor, ...] = flatten(call(**dict(zip(specs, tensors, strict=True))))
        return flat

    try:
        # Autograph would raise a copy of what a function of batches is refused for.
        concrete = tf.function(example, autograph=batch is None).get_concrete_function(*specs.values())
        if knows_fewer_shapes(concrete.graph):
            concrete, lines = with_known_shapes(concrete, lines)
    except Exception as error:
        if refusals:
            raise refusals[0] from None
        if isinstance(error, VectorizerError):
            raise
        raise TraceError(f"{name} could not be traced for one example: {_first_lines(error)}") from error
    return ExampleFunction(
        name=name,
        concrete=concrete,
        inputs=specs,
        output_names=tuple(output_names),
        target=fn,
        lines=lines,
        batch=batch,
        target_lines=lines,
    )


def _named_spec(name: str, spec: Any) -> tf.TensorSpec:
    if not isinstance(spec, tf.TensorSpec):
        raise DeclarationError(f"input {name!r}: expected a tf.TensorSpec of one example, got {type(spec).__name__}")
    if spec.shape.rank is None:
        raise DeclarationError(f"input {name!r}: the number of dimensions is unknown; name them, None where they vary")
    return tf.TensorSpec(spec.shape, spec.dtype, name=name)


def named_outputs(result: Any, function_name: str) -> dict[str, tf.Tensor]:
    """Name what a function returned: its dict's keys, its named tuple's fields, else ``output`` or ``output_i``."""
    if isinstance(result, Mapping):
        items: Sequence[tuple[str, Any]] = [(str(key), value) for key, value in result.items()]
    elif isinstance(result, tuple) and hasattr(result, "_fields"):
        items = list(zip(result._fields, result, strict=True))
    elif isinstance(result, (tuple, list)):
        items = [(f"{SINGLE_OUTPUT}_{index}", value) for index, value in enumerate(result)]
    else:
        items = [(SINGLE_OUTPUT, result)]
    named = {}
    for key, value in items:
        if value is None or isinstance(value, (*_NOT_DENSE, Mapping, list, tuple)):
            raise DeclarationError(
                f"{function_name}: output {key!r} is a {type(value).__name__}; return dense tensors, "
                "in a flat dict or tuple"
            )
        # Identity, so that an input that is returned as it came is an op of the graph like any other output.
        named[key] = tf.identity(value)
    if not named:
        raise DeclarationError(f"{function_name} returns nothing: return a tensor, a dict or a tuple of tensors")
    return named


def _ordered(named: dict[str, tf.Tensor], order: Sequence[str] | None, function_name: str) -> dict[str, tf.Tensor]:
    if order is None:
        return named
    if sorted(order) != sorted(named):
        raise DeclarationError(f"{function_name} gives the outputs {sorted(named)}, and declared are {list(order)}")
    return {key: named[key] for key in order}


def _name_of(fn: Any) -> str:
    for attribute in ("__qualname__", "name", "__name__"):
        value = getattr(fn, attribute, None)
        if isinstance(value, str):
            return value.replace("<locals>.", "")
    return type(fn).__name__


def _is_keras_model(fn: Any) -> bool:
    keras = sys.modules.get("keras")  # a Keras model can't exist before its module does
    return keras is not None and isinstance(fn, keras.Model)


def _first_lines(error: BaseException, *, limit: int = 6) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: " + "\n".join(lines[-limit:])

"""From the caller's function to a SavedModel of one example, with everything that the function reads.

The signature ``serving_default`` takes the inputs and gives the outputs by name. Variables that the function
captured (module globals, closures, attributes of its model) are saved with it, and so are lookup tables and
other resources that have no variable: those are found by following what the function's code refers to.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import tensorflow as tf

from rowwise.errors import CannotTrace, WrongInputs
from rowwise.input_specs import normalized
from vectorizer.batch_dimension import check_batch_dimension
from vectorizer.errors import VectorizerError
from vectorizer.resources import resources_of
from vectorizer.saved_source import keep_user_lines
from vectorizer.trace import ExampleFunction, trace_example

__all__ = ["SIGNATURE", "inputs_of", "save_example_function"]

#: The signature's key: what TensorFlow calls the one that is meant where none is named.
SIGNATURE = "serving_default"


def inputs_of(target: Any) -> Mapping[str, Any] | None:
    """Return the per-example inputs that the target itself knows: a built Keras model's; None for all others."""
    if not isinstance(target, tf.keras.Model) or not target.built:
        return None
    tensors = getattr(target, "inputs", None) or ()
    return {tensor.name: {"dtype": tensor.dtype, "shape": tensor.shape[1:]} for tensor in tensors} or None


def save_example_function(target: Any, inputs: Mapping[str, Any], directory: Path) -> tuple[str, ...]:
    """Trace ``target`` for one example, save it into ``directory`` as a SavedModel, and return its outputs in order.

    ``target`` is a plain function (autograph is applied), a ``tf.function``, a ``tf.Module`` with a
    ``__call__``, or a Keras model, whose batch dimension is taken off. ``inputs`` are the shapes of one
    example, None where examples differ.
    Errors: WrongInputs for an input that is malformed or that the function doesn't take; CannotTrace, also for a model
        whose rows depend on each other.
    """
    specs = {name: _tensor_spec(name, form) for name, form in normalized(inputs).items()}
    _check_parameters(target, specs)
    try:
        traced = trace_example(target, specs)
        # What is uploaded takes one example: whether rows depend on each other can't be seen from it any more.
        check_batch_dimension(traced)
    except VectorizerError as error:
        raise CannotTrace(str(error)) from error
    module = tf.Module()
    module.captured = [*traced.variables, *resources_of(target)]
    function = _named(traced)
    try:
        tf.saved_model.save(
            module,
            str(directory),
            signatures={SIGNATURE: function},
            # With them the server can name the user's own function and lines.
            options=tf.saved_model.SaveOptions(save_debug_info=True, function_aliases={traced.name: function}),
        )
        keep_user_lines(directory)
    except (AssertionError, ValueError, TypeError, tf.errors.OpError) as error:
        raise CannotTrace(
            f"{traced.name} was traced but could not be saved: {error}. If it reads a resource that was made inside "
            "another function, keep it in a module global or an attribute of a tf.Module"
        ) from error
    return traced.output_names


def _tensor_spec(name: str, form: Mapping[str, Any]) -> tf.TensorSpec:
    try:
        return tf.TensorSpec(form["shape"], tf.dtypes.as_dtype(form["dtype"]), name=name)
    except TypeError as error:
        raise WrongInputs(f"input {name!r}: TensorFlow has no dtype {form['dtype']!r}") from error


def _named(traced: ExampleFunction) -> Any:
    """Return the traced function with its inputs and outputs by name, as a signature wants them."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def serving_default(**example: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = traced.concrete(*(example[name] for name in traced.input_names))
        return dict(zip(traced.output_names, outputs, strict=True))

    return tf.function(serving_default).get_concrete_function(**traced.inputs)


def _check_parameters(target: Any, specs: Mapping[str, Any]) -> None:
    """Refuse inputs that a plain function has no parameter for, and required parameters without an input."""
    function = getattr(target, "python_function", target)
    if isinstance(function, tf.keras.Model):
        return
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return  # a callable without a readable signature: tracing will tell
    named = {each.name for each in parameters if each.kind in {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}}
    required = {each.name for each in parameters if each.name in named and each.default is Parameter.empty}
    takes_all = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)
    if required - set(specs) or (set(specs) - named and not takes_all):
        raise WrongInputs(
            f"the function takes {', '.join(each.name for each in parameters) or 'nothing'}; "
            f"inputs declares {', '.join(specs)}: the names must be the same"
        )

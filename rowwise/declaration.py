"""The example-model decorator: a function of one example that carries its inputs and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rowwise.input_specs import normalized

__all__ = ["declared_inputs", "declared_spec", "example_model"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_INPUTS = "__rowwise_inputs__"
_SPEC = "__rowwise_spec__"


def example_model(*, inputs: Mapping[str, Any], **spec: Any) -> Callable[[_Function], _Function]:
    """Declare the inputs and registration options of a per-example function; the function itself is unchanged::

        @rowwise.example_model(inputs={"x": {"dtype": "float32", "shape": [64]}}, max_batch=128)
        def predict(x):
            return tf.nn.softmax(x @ weights)

    ``inputs`` are as for ``Client.register``, which needs none for such a function; so do ``rowwise register``
    and ``rowwise vectorize``.

    Errors: WrongInputs if ``inputs`` is malformed.
    """
    normalized(inputs)

    def declare(function: _Function) -> _Function:
        setattr(function, _INPUTS, dict(inputs))
        setattr(function, _SPEC, dict(spec))
        return function

    return declare


def declared_inputs(function: Any) -> Mapping[str, Any] | None:
    """Return what ``example_model`` declared, or None."""
    inputs: Mapping[str, Any] | None = getattr(function, _INPUTS, None)
    return inputs


def declared_spec(function: Any) -> dict[str, Any]:
    """Return the options that ``example_model`` declared."""
    return dict(getattr(function, _SPEC, {}))

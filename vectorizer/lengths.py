"""Variable dimensions: what a model declares about one, and the padded lengths that get compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from vectorizer.errors import DeclarationError

__all__ = ["Axis", "Length", "length_axes", "length_ladder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """The declaration of one input's variable dimension.

    ``max`` is its largest size; ``buckets`` the padded sizes to compile (None: powers of two from 8 up to
    ``max``); ``length_input`` the scalar input that is told the true size, if the function asks for it.
    Inputs that name the same ``length_input`` always have the same length.
    """

    max: int
    buckets: tuple[int, ...] | None = None
    length_input: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A length axis of the whole model: the dimensions ``(input, dim)`` that share one true length."""

    name: str
    max: int
    buckets: tuple[int, ...]
    length_input: str | None
    dims: tuple[tuple[str, int], ...]


def length_ladder(longest: int, *, shortest: int = 8) -> tuple[int, ...]:
    """Return powers of two from ``shortest`` below ``longest``, then ``longest`` itself."""
    sizes = []
    size = shortest
    while size < longest:
        sizes.append(size)
        size *= 2
    return (*sizes, longest)


def length_axes(inputs: Mapping[str, tf.TensorSpec], lengths: Mapping[str, Length]) -> tuple[Axis, ...]:
    """Check the declarations against the inputs and return the model's length axes, in the order of the inputs.

    Errors: DeclarationError for a variable dimension without a declaration, a declaration without one, a
        length input that is missing or no integer scalar, and inputs that share one but disagree.
    """
    for name in lengths:
        if name not in inputs:
            raise DeclarationError(f"lengths names {name!r}, which is no input; inputs are {sorted(inputs)}")
    axes: dict[str, Axis] = {}
    for name, spec in inputs.items():
        variable = [index for index, size in enumerate(spec.shape) if size is None]
        length = lengths.get(name)
        if not variable:
            if length is not None:
                raise DeclarationError(f"input {name!r} has no variable dimension, its shape is {spec.shape}")
            continue
        if len(variable) > 1:
            raise DeclarationError(f"input {name!r} has {len(variable)} variable dimensions; one at most")
        if length is None:
            raise DeclarationError(
                f"input {name!r} has a variable dimension, {spec.shape}: declare its largest size, "
                f"lengths={{{name!r}: Length(max=...)}}"
            )
        axis = _axis(name, variable[0], length, inputs)
        shared = axes.get(axis.name)
        if shared is not None and axis.length_input != shared.length_input:
            raise DeclarationError(
                f"inputs {shared.dims[0][0]!r} and {name!r} both have a length called {axis.name!r}: "
                "rename the length input"
            )
        if shared is not None:
            if (shared.max, shared.buckets) != (axis.max, axis.buckets):
                raise DeclarationError(
                    f"inputs {shared.dims[0][0]!r} and {name!r} share the length input {axis.name!r} "
                    "but declare different sizes"
                )
            axis = Axis(
                name=axis.name,
                max=axis.max,
                buckets=axis.buckets,
                length_input=axis.length_input,
                dims=(*shared.dims, *axis.dims),
            )
        axes[axis.name] = axis
    return tuple(axes.values())


def _axis(name: str, dim: int, length: Length, inputs: Mapping[str, tf.TensorSpec]) -> Axis:
    if length.max < 1:
        raise DeclarationError(f"input {name!r}: the largest size must be at least 1, got {length.max}")
    buckets = tuple(sorted(set(length.buckets))) if length.buckets is not None else length_ladder(length.max)
    if not buckets or buckets[0] < 1 or buckets[-1] != length.max:
        raise DeclarationError(
            f"input {name!r}: length buckets {buckets} must be positive and end with the largest size {length.max}"
        )
    if length.length_input is not None:
        spec = inputs.get(length.length_input)
        if spec is None or spec.shape.rank != 0 or spec.dtype not in (tf.int32, tf.int64):
            raise DeclarationError(
                f"input {name!r}: its length input {length.length_input!r} must be an int32 or int64 scalar input"
            )
    return Axis(
        name=length.length_input or f"{name}_length",
        max=length.max,
        buckets=buckets,
        length_input=length.length_input,
        dims=((name, dim),),
    )

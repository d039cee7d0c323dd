"""The examples on which a batched graph is checked: the user's own, edge values, and random ones.

A probe is an example with its true lengths; the per-example function's answers to it are the reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.errors import DeclarationError, ProbeError
from vectorizer.inputs import example_array
from vectorizer.lengths import Axis
from vectorizer.patience import OutOfPatience, within
from vectorizer.trace import ExampleFunction

__all__ = ["Probe", "as_array", "make_probes", "shown"]

#: Distinct random examples, or as many as there are boundaries between length buckets. More rows repeat them.
N_RANDOM = 32
#: For one example. A function that takes longer than this can't be served one by one either.
_PATIENCE_S = 20.0
#: Integers are often indices; small ones are in range more often than not.
_INTEGER_LIMIT = 8
_WORDS = (b"", b"a", b"7", b"3.5", b"row wise", "h\u00f6ren".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One example, its true length on each axis, and what the per-example function answered (nothing if it raised)."""

    example: Mapping[str, np.ndarray]
    lengths: tuple[int, ...]
    answers: tuple[np.ndarray, ...]


def make_probes(
    function: ExampleFunction, axes: Sequence[Axis], *, examples: Sequence[Mapping[str, Any]], seed: int
) -> tuple[list[Probe], list[Probe]]:
    """Return the probes on which the function answers, and those that it refused by raising.

    Errors: DeclarationError if one of ``examples`` does not fit the inputs; ProbeError if it raised on all, or does
        not end on one.
    """
    rng = np.random.default_rng(seed)
    probes: list[Probe] = []
    refused: list[Probe] = []
    last_error: Exception | None = None
    for example, lengths in (
        *(_checked(example, function, axes, index) for index, example in enumerate(examples)),
        *_edges(function, axes),
        *_random(function, axes, rng),
    ):
        try:
            answers = within(_PATIENCE_S, function, example)
        except OutOfPatience:
            raise ProbeError(
                f"{function.name} does not end within {_PATIENCE_S:g} s on the example {shown(example)}: bound its "
                "loops, for a caller who sends such an example would hold up everybody in its batch"
            ) from None
        except (tf.errors.OpError, ValueError) as error:
            refused.append(Probe(example=example, lengths=lengths, answers=()))
            last_error = error
        else:
            probes.append(Probe(example=example, lengths=lengths, answers=tuple(map(as_array, answers))))
    if not probes:
        raise ProbeError(
            f"{function.name} raised on every probe, so nothing can be checked; give examples that it answers "
            f"(examples=[...]). The last error: {last_error}"
        )
    return probes, refused


def shown(example: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Return an example as text for a message: its values, long ones cut short."""
    return {name: np.array2string(value, threshold=8, edgeitems=3, precision=6) for name, value in example.items()}


def as_array(tensor: tf.Tensor) -> np.ndarray:
    """Return a tensor's value; TensorFlow gives a bare Python or NumPy scalar for a tensor without dimensions."""
    value = tensor.numpy()
    return value if isinstance(value, np.ndarray) else np.asarray(value, tensor.dtype.as_numpy_dtype)


def _checked(
    example: Mapping[str, Any], function: ExampleFunction, axes: Sequence[Axis], index: int
) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
    length_inputs = {axis.length_input for axis in axes}
    if not isinstance(example, Mapping):
        raise DeclarationError(f"example {index}: expected a dict of inputs, got {type(example).__name__}")
    missing = function.inputs.keys() - example.keys() - length_inputs
    unknown = example.keys() - function.inputs.keys()
    if missing or unknown:
        raise DeclarationError(
            f"example {index}: expected the inputs {sorted(function.inputs)}, "
            f"missing {sorted(missing)}, unknown {sorted(unknown)}"
        )
    values: dict[str, np.ndarray] = {}
    for name, spec in function.inputs.items():
        if name not in example:
            continue
        values[name] = example_array(example[name], spec, where=f"example {index}: input {name!r}")
    lengths = []
    for axis in axes:
        sizes = {values[name].shape[dim] for name, dim in axis.dims}
        if len(sizes) > 1 or max(sizes) > axis.max:
            raise DeclarationError(
                f"example {index}: inputs {[name for name, _ in axis.dims]} have sizes {sorted(sizes)} on their "
                f"variable dimension, expected one size of at most {axis.max}"
            )
        lengths.append(sizes.pop())
        if axis.length_input is not None:
            values[axis.length_input] = _length(function, axis, lengths[-1])
    return values, tuple(lengths)


def _edges(function: ExampleFunction, axes: Sequence[Axis]) -> Iterator[tuple[dict[str, np.ndarray], tuple[int, ...]]]:
    longest = tuple(axis.max for axis in axes)
    fills = (0, 1, -1, 1000)
    for lengths in dict.fromkeys((longest, tuple(0 for _ in axes))):
        for fill in fills:
            yield _example(function, axes, lengths, lambda spec, shape, fill=fill: _filled(spec, shape, fill)), lengths


def _random(
    function: ExampleFunction, axes: Sequence[Axis], rng: np.random.Generator
) -> Iterator[tuple[dict[str, np.ndarray], tuple[int, ...]]]:
    boundaries = [_boundaries(axis) for axis in axes]
    for index in range(max([N_RANDOM, *map(len, boundaries)])):
        # First every boundary between two length buckets, no two axes at the same one; then any length.
        lengths = tuple(
            known[(index + position) % len(known)] if index < len(known) else int(rng.integers(0, axis.max + 1))
            for position, (axis, known) in enumerate(zip(axes, boundaries, strict=True))
        )
        yield _example(function, axes, lengths, lambda spec, shape: _drawn(spec, shape, rng)), lengths


def _boundaries(axis: Axis) -> list[int]:
    return sorted({size + step for size in axis.buckets for step in (0, 1) if size + step <= axis.max} | {1})


def _example(
    function: ExampleFunction, axes: Sequence[Axis], lengths: Sequence[int], draw: Any
) -> dict[str, np.ndarray]:
    sizes = {(name, dim): length for axis, length in zip(axes, lengths, strict=True) for name, dim in axis.dims}
    told = {axis.length_input: (axis, length) for axis, length in zip(axes, lengths, strict=True)}
    example = {}
    for name, spec in function.inputs.items():
        if name in told:
            axis, length = told[name]
            example[name] = _length(function, axis, length)
        else:
            shape = tuple(sizes[name, dim] if size is None else size for dim, size in enumerate(spec.shape))
            example[name] = draw(spec, shape)
    return example


def _length(function: ExampleFunction, axis: Axis, length: int) -> np.ndarray:
    return np.asarray(length, function.inputs[axis.length_input or ""].dtype.as_numpy_dtype)


def _filled(spec: tf.TensorSpec, shape: tuple[int, ...], fill: int) -> np.ndarray:
    if spec.dtype == tf.string:
        return np.full(shape, _WORDS[abs(fill) % len(_WORDS)], dtype=object)
    if spec.dtype == tf.bool:
        return np.full(shape, bool(fill))
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        fill = max(info.min, min(info.max, fill))
    return np.full(shape, fill, dtype=dtype)


def _drawn(spec: tf.TensorSpec, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if spec.dtype == tf.string:
        return np.array([_WORDS[i] for i in rng.integers(0, len(_WORDS), int(np.prod(shape)))], object).reshape(shape)
    if spec.dtype == tf.bool:
        return rng.integers(0, 2, shape).astype(bool)
    if spec.dtype.is_integer:
        return rng.integers(0, _INTEGER_LIMIT, shape).astype(spec.dtype.as_numpy_dtype)
    if spec.dtype.is_complex:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(spec.dtype.as_numpy_dtype)
    return rng.normal(size=shape).astype(spec.dtype.as_numpy_dtype)

"""The examples on which a batched graph is checked: the user's own, edge values, and random ones.

A probe is an example with its true lengths; the per-example function's answers to it are the reference.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from vectorizer.certificate import ProbeCounts
from vectorizer.effects import walk_ops
from vectorizer.errors import DeclarationError, ProbeError
from vectorizer.inputs import example_array
from vectorizer.lengths import Axis
from vectorizer.patience import OutOfPatience, Patience
from vectorizer.probe_values import FILLS, drawn, extremes, filled, has_denormals, sprinkled
from vectorizer.sizes import sizes_vary
from vectorizer.trace import ExampleFunction

__all__ = ["Probe", "ProbeKind", "Probes", "as_array", "make_probes", "shown"]

#: Distinct random examples, or as many as there are lengths worth checking. More rows repeat them.
N_RANDOM = 32
#: For one example. A function that takes longer than this can't be served one by one either.
_PATIENCE_S = 20.0
#: For one extreme example, unless ordinary ones take that long too.
_EXTREME_PATIENCE_S = 0.5
_N_SPRINKLED = 3
#: Ops whose kernels count a huge number down by a small one for ever, deaf to cancellation.
_HANGING = frozenset({"AdjustHue"})
#: Every length is checked up to this one: as many examples as a checked bucket of 64 rows takes in one call.
_EVERY_LENGTH = 32
_N_SPREAD = 9


class ProbeKind(StrEnum):
    """Where a probe comes from."""

    YOURS = "yours"
    EDGE = "edge"  #: constant, no longer than nothing or the longest
    EXTREME = "extreme"  #: not a number, infinities, limits of the type
    RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One example, its true length on each axis, and what the per-example function answered (nothing if it raised)."""

    example: Mapping[str, np.ndarray]
    lengths: tuple[int, ...]
    answers: tuple[np.ndarray, ...]
    kind: ProbeKind = ProbeKind.RANDOM
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The examples that the function answers, those that it refused by raising, and those that it does not end on."""

    answered: tuple[Probe, ...]
    refused: tuple[Probe, ...]
    unending: tuple[Probe, ...]

    @property
    def ordinary(self) -> tuple[Probe, ...]:
        """Those that are answered and not extreme; all that are answered if there are no others."""
        return tuple(probe for probe in self.answered if probe.kind is not ProbeKind.EXTREME) or self.answered

    def counts(self) -> ProbeCounts:
        """Return how many there are of each sort."""
        kinds = Counter(probe.kind.value for probe in self.answered)
        return ProbeCounts(**kinds, unending=tuple(str(shown(probe.example)) for probe in self.unending))


class _Candidate(NamedTuple):
    kind: ProbeKind
    label: str
    example: dict[str, np.ndarray]
    lengths: tuple[int, ...]


def make_probes(
    function: ExampleFunction, axes: Sequence[Axis], *, examples: Sequence[Mapping[str, Any]], seed: int
) -> Probes:
    """Ask the function for its answer to each probe.

    Errors: DeclarationError if one of ``examples`` does not fit the inputs; ProbeError if it raised on all, does not
        end on one that is not extreme, or gives another shape than it says.
    """
    rng = np.random.default_rng(seed)
    sorted_by: dict[str, list[Probe]] = {"answered": [], "refused": [], "unending": []}
    last_error: Exception | None = None
    slowest_s = 0.0
    candidates = (
        *(
            _Candidate(ProbeKind.YOURS, f"example {index}", *_checked(example, function, axes, index))
            for index, example in enumerate(examples)
        ),
        *_edges(function, axes),
        *_random(function, axes, rng),
        *(extreme for extreme in _extremes(function, axes, rng) if not _rounds_to_a_failure(function, extreme)),
    )
    works_on = False
    with Patience() as patience:
        for kind, label, example, lengths in candidates:
            if works_on and kind is ProbeKind.EXTREME:
                break  # one kernel that can't be stopped keeps a core busy; another one would keep the next
            limit_s = max(_EXTREME_PATIENCE_S, 20 * slowest_s) if kind is ProbeKind.EXTREME else _PATIENCE_S
            answers: tuple[np.ndarray, ...] = ()
            outcome = "answered"
            call, cancel = function.stoppable()
            started = time.monotonic()
            try:
                answers = tuple(map(as_array, patience.within(limit_s, call, example, cancel=cancel)))
            except OutOfPatience as out:
                if kind is not ProbeKind.EXTREME:
                    raise ProbeError(
                        f"{function.name} does not end within {_PATIENCE_S:g} s on the example {shown(example)}: bound "
                        "its loops, for a caller who sends such an example would hold up everybody in its batch"
                    ) from None
                outcome, works_on = "unending", out.works_on
            except (tf.errors.OpError, ValueError) as error:
                last_error = error
                outcome = "refused"
            else:
                slowest_s = max(slowest_s, time.monotonic() - started)
                _check_shapes(function, example, answers)
            probe = Probe(example=example, lengths=lengths, answers=answers, kind=kind, label=label)
            sorted_by[outcome].append(probe)
    if not sorted_by["answered"]:
        raise ProbeError(
            f"{function.name} raised on every probe, so nothing can be checked; give examples that it answers "
            f"(examples=[...]). The last error: {last_error}"
        )
    return Probes(
        answered=tuple(_interleaved(sorted_by["answered"])),
        refused=tuple(sorted_by["refused"]),
        unending=tuple(sorted_by["unending"]),
    )


def _check_shapes(function: ExampleFunction, example: Mapping[str, np.ndarray], answers: Sequence[np.ndarray]) -> None:
    for name, said, answer in zip(function.output_names, function.concrete.outputs, answers, strict=True):
        if not said.shape.is_compatible_with(answer.shape):
            raise ProbeError(
                f"{function.name}: output {name!r} has the shape {said.shape} by its graph, and on the example "
                f"{shown(example)} it has {answer.shape}: something in the function states a shape (set_shape) that is "
                "not always so. Keras' TextVectorization does, of one text alone: give it [text], and take row 0"
            )


def _interleaved(probes: Sequence[Probe]) -> list[Probe]:
    """Put extreme examples between ordinary ones: in a batch, neither may matter to the other."""
    extreme = [probe for probe in probes if probe.kind is ProbeKind.EXTREME]
    ordinary = [probe for probe in probes if probe.kind is not ProbeKind.EXTREME]
    return [probe for pair in zip_longest(ordinary, extreme) for probe in pair if probe is not None]


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
    missing = function.inputs.keys() - example.keys() - length_inputs - {function.seed_input}
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
    if function.seed_input is not None:
        values.setdefault(function.seed_input, np.asarray(index, np.int64))
    return values, tuple(lengths)


def _edges(function: ExampleFunction, axes: Sequence[Axis]) -> Iterator[_Candidate]:
    longest = tuple(axis.max for axis in axes)
    for lengths in dict.fromkeys((longest, tuple(0 for _ in axes))):
        for fill in FILLS:
            example = _example(function, axes, lengths, lambda _, spec, shape, fill=fill: filled(spec, shape, fill))
            yield _Candidate(ProbeKind.EDGE, f"all {fill}", example, lengths)


def _extremes(function: ExampleFunction, axes: Sequence[Axis], rng: np.random.Generator) -> Iterator[_Candidate]:
    """Yield examples that are extreme in one sort of input, and ordinary in the others."""
    longest = tuple(axis.max for axis in axes)
    told = {axis.length_input for axis in axes}
    sorts: dict[str, list[str]] = {}
    for name, spec in function.inputs.items():
        if name not in told and extremes(spec.dtype):
            sorts.setdefault(_sort(spec.dtype), []).append(name)
    if any(op.type in _HANGING for op in walk_ops(function.graph)):
        sorts.pop("floats", None)
    if "integers" in sorts and sizes_vary(function.graph):
        del sorts["integers"]  # memory for the largest integer's size can't be had, and asking ends the process
    for names in sorts.values():
        values = {name: extremes(function.inputs[name].dtype) for name in names}
        for label in next(iter(values.values())):

            def constant(name: str, spec: tf.TensorSpec, shape: Any, label: str = label, of: Any = values) -> Any:
                if name not in of:
                    return drawn(spec, shape, rng)
                return np.full(shape, of[name][label], spec.dtype.as_numpy_dtype if spec.dtype != tf.string else object)

            yield _Candidate(ProbeKind.EXTREME, f"all {label}", _example(function, axes, longest, constant), longest)
        for turn in range(_N_SPRINKLED):

            def mixed(name: str, spec: tf.TensorSpec, shape: Any, of: Any = values) -> Any:
                return (sprinkled if name in of else drawn)(spec, shape, rng)

            lengths = tuple(axis.max - turn * (axis.max // _N_SPRINKLED) for axis in axes)
            yield _Candidate(
                ProbeKind.EXTREME, "extreme among ordinary", _example(function, axes, lengths, mixed), lengths
            )


def _rounds_to_a_failure(function: ExampleFunction, candidate: _Candidate) -> bool:
    """Return True for a denormal number and a function that checks its values.

    A kernel takes denormals for zeros or not, as the thread that runs it is set, and so may make an infinity of a
    logarithm that is finite alone.
    """
    return function.has_checks and any(has_denormals(value) for value in candidate.example.values())


def _sort(dtype: tf.DType) -> str:
    return "strings" if dtype == tf.string else "integers" if dtype.is_integer else "floats"


def _random(function: ExampleFunction, axes: Sequence[Axis], rng: np.random.Generator) -> Iterator[_Candidate]:
    known = [_lengths(axis) for axis in axes]
    for index in range(max([N_RANDOM, *map(len, known)])):
        # First every length that is worth it, no two axes at the same one; then any length.
        lengths = tuple(
            each[(index + position) % len(each)] if index < len(each) else int(rng.integers(0, axis.max + 1))
            for position, (axis, each) in enumerate(zip(axes, known, strict=True))
        )
        example = _example(function, axes, lengths, lambda _, spec, shape: drawn(spec, shape, rng))
        if function.seed_input is not None:
            example[function.seed_input] = np.asarray(rng.integers(-(2**63), 2**63, dtype=np.int64))
        yield _Candidate(ProbeKind.RANDOM, "", example, lengths)


def _lengths(axis: Axis) -> list[int]:
    """Return all lengths where they are few, else those around every bucket's and some in between."""
    if axis.max <= _EVERY_LENGTH:
        return list(range(axis.max + 1))
    around = {size + step for size in axis.buckets for step in (-1, 0, 1)}
    spread = {round(share) for share in np.linspace(0, axis.max, _N_SPREAD)}
    return sorted(length for length in around | spread | {1} if 0 <= length <= axis.max)


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
            example[name] = draw(name, spec, shape)
    return example


def _length(function: ExampleFunction, axis: Axis, length: int) -> np.ndarray:
    return np.asarray(length, function.inputs[axis.length_input or ""].dtype.as_numpy_dtype)

"""The result of vectorizing: batched graphs, callable for any number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.certificate import Certificate
from vectorizer.differing import length_name
from vectorizer.errors import DeclarationError
from vectorizer.fresh_seeds import fresh_seeds
from vectorizer.inputs import example_array
from vectorizer.lengths import Axis
from vectorizer.parity import tolerance_of
from vectorizer.probes import Probe, as_array
from vectorizer.trace import SINGLE_OUTPUT, ExampleFunction

__all__ = ["Bucket", "Output", "Vectorized", "pad_example", "pad_rows", "run_concrete", "shape_in"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Bucket:
    """A batch size and the padded size of each length axis, in the model's order."""

    rows: int
    lengths: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"bucket {'x'.join(map(str, (self.rows, *self.lengths)))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An output of one example.

    A dimension is a size, or the length axis that it follows, or None: then the batched graph tells its size for each
    row, in the output that ``length_name`` names.
    """

    name: str
    dtype: tf.DType
    dims: tuple[int | Axis | None, ...]

    @property
    def is_fixed(self) -> bool:
        """True if all examples give one shape."""
        return all(isinstance(dim, int) for dim in self.dims)

    @property
    def known_dims(self) -> tuple[int | Axis, ...]:
        """The dimensions of an output none of whose sizes the graph tells."""
        assert None not in self.dims
        return tuple(dim for dim in self.dims if dim is not None)

    @property
    def length_names(self) -> dict[int, str]:
        """Return, by dimension, the outputs of a batched graph that tell this one's true sizes."""
        return {index: length_name(self.name, index) for index, dim in enumerate(self.dims) if dim is None}

    def row(self, arrays: Mapping[str, np.ndarray], slot: int, lengths: Mapping[str, int]) -> np.ndarray:
        """Return one row of a batched graph's answer, cut to its true sizes. ``lengths`` are those of the axes."""
        row: np.ndarray = arrays[self.name][slot, ...]
        if self.is_fixed:
            return row
        for dim, name in self.length_names.items():
            row = row[(slice(None),) * dim + (slice(int(arrays[name][slot])),)]
        return self.cut(row, lengths)

    def cut(self, row: np.ndarray, lengths: Mapping[str, int]) -> np.ndarray:
        """Cut one row to the true lengths of the axes that it follows."""
        return row[tuple(slice(lengths[dim.name]) if isinstance(dim, Axis) else slice(None) for dim in self.dims)]

    def tolerance(self, override: float | None) -> float:
        """Return what the parity check allows for this dtype."""
        return tolerance_of(self.dtype, override)


class Vectorized:
    """Batched graphs of one function, sharing its variables.

    ``bucket(n)`` is the graph for n rows; calling takes any number of rows; ``certificate`` says how it was made
    and checked.
    """

    def __init__(
        self,
        *,
        function: ExampleFunction,
        axes: tuple[Axis, ...],
        outputs: tuple[Output, ...],
        graphs: Mapping[Bucket, Any],
        partitioned: Mapping[Bucket, Any] | None = None,
        probes: tuple[Probe, ...],
        refused: tuple[Probe, ...],
        certificate: Certificate,
        bare: bool | None = None,
        is_for_xla: bool = True,
    ) -> None:
        self.function = function
        self.axes = axes
        self.outputs = outputs
        self.graphs = dict(graphs)
        #: The same with loops and branches that run on the rows in them alone, for buckets where that may be faster.
        self.partitioned = dict(partitioned or {})
        self.probes = probes
        #: Examples on which the function raised.
        self.refused = refused
        self.certificate = certificate
        #: A call returns the one output without its name; None: if the function named none.
        self._bare = [output.name for output in outputs] == [SINGLE_OUTPUT] if bare is None else bare
        #: The declared derivatives by name, each for any number of rows as the function itself.
        self.derivatives: dict[str, Vectorized] = {}
        #: False if sizes in a graph are known only when it runs: XLA can't compile it.
        self.is_for_xla = is_for_xla
        #: Of a derivative: the ``Derivative`` with everything found that it left open.
        self.derivative: Any = None

    @property
    def buckets(self) -> tuple[int, ...]:
        """Batch sizes, ascending."""
        return tuple(sorted({bucket.rows for bucket in self.graphs}))

    def bucket(self, rows: int, *, lengths: tuple[int, ...] = ()) -> Any:
        """Return the ConcreteFunction of a bucket: inputs by name, ``[rows, *s]`` each -> dict of outputs.

        Errors: DeclarationError if there is no such bucket.
        """
        try:
            return self.graphs[Bucket(rows=rows, lengths=lengths)]
        except KeyError:
            raise DeclarationError(
                f"no bucket of {rows} rows and lengths {lengths}; there are {', '.join(map(str, self.graphs))}"
            ) from None

    def __call__(self, **inputs: Any) -> Any:
        """Run any number of rows.

        Shapes: each input ``[n, *s]``, or for a variable dimension a list of n arrays at their own lengths (the
        length input is filled in). Returns what the function returns, each output ``[n, *t]``, or a list of n
        arrays where its size depends on the example. n = 0 gives zero rows.
        Errors: DeclarationError for missing or unknown inputs, rows that differ in number, or over the maximum.
        """
        rows, lengths = self._rows(inputs)
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, true in enumerate(lengths):
            groups.setdefault(self._padded(true), []).append(index)
        answers: list[dict[str, np.ndarray] | None] = [None] * len(lengths)
        for padded, members in groups.items():
            for chunk, bucket in self._chunks(members, padded):
                arrays = run_concrete(self.graphs[bucket])(self._stack([rows[index] for index in chunk], bucket))
                for slot, index in enumerate(chunk):
                    true_lengths = dict(zip((axis.name for axis in self.axes), lengths[index], strict=True))
                    answers[index] = {output.name: output.row(arrays, slot, true_lengths) for output in self.outputs}
        return self._pack([answer for answer in answers if answer is not None])

    def _rows(self, inputs: Mapping[str, Any]) -> tuple[list[dict[str, np.ndarray]], list[tuple[int, ...]]]:
        told = {axis.length_input for axis in self.axes if axis.length_input}
        expected = self.function.inputs.keys() - told
        seed_input = self.function.seed_input
        if seed_input is not None and seed_input not in inputs and inputs.keys() - told == expected - {seed_input}:
            inputs = {**inputs, seed_input: fresh_seeds(max(_n_rows(name, value) for name, value in inputs.items()))}
        if inputs.keys() - told != expected:
            raise DeclarationError(f"expected the inputs {sorted(expected)}, got {sorted(inputs)}")
        numbers = {name: _n_rows(name, inputs[name]) for name in self.function.inputs if name in expected}
        if len(set(numbers.values())) > 1:
            raise DeclarationError(f"inputs have different numbers of rows: {numbers}")
        rows = []
        lengths = []
        for index in range(next(iter(numbers.values()))):
            row = {
                name: example_array(inputs[name][index], spec, where=f"input {name!r} of row {index}")
                for name, spec in self.function.inputs.items()
                if name in expected
            }
            lengths.append(tuple(self._length(row, index, axis) for axis in self.axes))
            for axis, length in zip(self.axes, lengths[-1], strict=True):
                if axis.length_input:
                    dtype = self.function.inputs[axis.length_input].dtype.as_numpy_dtype
                    row[axis.length_input] = np.asarray(length, dtype)
            rows.append(row)
        return rows, lengths

    @staticmethod
    def _length(row: Mapping[str, np.ndarray], index: int, axis: Axis) -> int:
        sizes = {name: row[name].shape[dim] for name, dim in axis.dims}
        length = int(max(sizes.values()))
        if len(set(sizes.values())) > 1:
            raise DeclarationError(
                f"row {index}: inputs that share a length differ on their variable dimension: {sizes}"
            )
        if length > axis.max:
            raise DeclarationError(
                f"row {index}: input {axis.dims[0][0]!r} has {length} on its variable dimension, "
                f"expected at most {axis.max}"
            )
        return length

    def _padded(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            next(size for size in axis.buckets if length <= size)
            for axis, length in zip(self.axes, lengths, strict=True)
        )

    def _chunks(self, members: list[int], padded: tuple[int, ...]) -> Iterator[tuple[list[int], Bucket]]:
        start = 0
        while start < len(members):
            left = len(members) - start
            rows = next((size for size in self.buckets if left <= size), self.buckets[-1])
            yield members[start : start + rows], Bucket(rows=rows, lengths=padded)
            start += rows

    def _stack(self, rows: Sequence[Mapping[str, np.ndarray]], bucket: Bucket) -> dict[str, np.ndarray]:
        stacked = {}
        for name, spec in self.function.inputs.items():
            padded = [pad_example(row[name], shape_in(name, spec, self.axes, bucket)) for row in rows]
            stacked[name] = np.stack(pad_rows(padded, bucket.rows))
        return stacked

    def _pack(self, answers: list[dict[str, np.ndarray]]) -> Any:
        packed: dict[str, Any] = {}
        for output in self.outputs:
            values = [answer[output.name] for answer in answers]
            if output.is_fixed:
                dtype = output.dtype.as_numpy_dtype
                packed[output.name] = np.stack(values) if values else np.zeros((0, *output.dims), dtype)
            else:
                packed[output.name] = values
        return next(iter(packed.values())) if self._bare else packed


def _n_rows(name: str, value: Any) -> int:
    try:
        return len(value)
    except TypeError:
        raise DeclarationError(f"input {name!r}: expected rows along the first dimension, got {value!r}") from None


def run_concrete(graph: Any) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return a batched ConcreteFunction as a function of arrays."""

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = graph(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: as_array(value) for name, value in results.items()}

    return run


def shape_in(name: str, spec: tf.TensorSpec, axes: Sequence[Axis], bucket: Bucket) -> tuple[int, ...]:
    """Return an input's shape for one row of ``bucket``."""
    sizes = {dim: size for axis, size in zip(axes, bucket.lengths, strict=True) for dim in axis.dims}
    return tuple(sizes[name, dim] if size is None else size for dim, size in enumerate(spec.shape))


def pad_example(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Pad one example with zeros (empty strings) at the end of each dimension, up to ``shape``."""
    if value.shape == shape:
        return value
    padded = np.full(shape, b"", object) if value.dtype == object else np.zeros(shape, value.dtype)
    padded[tuple(map(slice, value.shape))] = value
    return padded


def pad_rows(rows: Sequence[np.ndarray], bucket: int) -> list[np.ndarray]:
    """Repeat the first row until there are ``bucket``, so that no model sees values that no caller sent."""
    return [*rows, *[rows[0]] * (bucket - len(rows))]

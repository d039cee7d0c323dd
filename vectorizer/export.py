"""Batched graphs as a plain SavedModel, for TensorFlow Serving and ``tf.saved_model.load``, without us.

Theory of operation. ``serving_default`` takes any number of rows: the graph that it is chooses the smallest bucket that
holds them, repeats the first row up to it, and cuts the answers back; more rows than the largest bucket go through it
in chunks. Where inputs have a variable length, the rows of one request share it (dense tensors do), the length bucket
is chosen the same way, and a length input is one of the signature's inputs. ``bucket_8`` and its kind are the compiled
graphs themselves. All of them share one set of variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from vectorizer.lengths import Axis
from vectorizer.resources import resources_of
from vectorizer.vectorized import Bucket, Output, Vectorized, shape_in

__all__ = ["BatchedGraphs", "bucket_signature", "export_saved_model", "save_batched_graphs"]

#: The signature that is meant where none is named.
ANY_ROWS = "serving_default"


@dataclass(frozen=True, kw_only=True)
class BatchedGraphs:
    """Compiled graphs of one function, one for each bucket, wherever they are from.

    ``owners`` hold their variables and tables.
    """

    inputs: Mapping[str, tf.TensorSpec]
    axes: tuple[Axis, ...]
    outputs: tuple[Output, ...]
    graphs: Mapping[Bucket, Any]
    owners: Sequence[Any] = field(default=())


def export_saved_model(vectorized: Vectorized, path: str | Path, *, owner: Any = None) -> None:
    """Write a SavedModel into the directory ``path``.

    Its signatures are ``serving_default``, for any number of rows, and ``bucket_N`` for each batch size (``bucket_NxL``
    with a variable length). A declared derivative has its own name for any number of rows.
    ``owner`` holds tables that the function's own code does not lead to: the loaded SavedModel of a signature.
    Errors: ValueError if a resource has no owner, or ``path`` holds something.
    """
    entries = {ANY_ROWS: _of_vectorized(vectorized, owner)}
    entries.update({name: _of_vectorized(each, owner) for name, each in vectorized.derivatives.items()})
    save_batched_graphs(entries, path)


def save_batched_graphs(entries: Mapping[str, BatchedGraphs], path: str | Path) -> None:
    """Write each entry as a signature for any number of rows, and each bucket of the first. Errors: ValueError."""
    if Path(path).exists() and any(Path(path).iterdir()):
        raise ValueError(f"{path} is not empty: name a new directory, so that nothing of another model stays in it")
    root = tf.Module()
    root.owners = [owner for entry in entries.values() for owner in entry.owners]
    signatures = {bucket_signature(bucket): graph for bucket, graph in next(iter(entries.values())).graphs.items()}
    signatures.update({name: _any_rows(entry) for name, entry in entries.items()})
    try:
        tf.saved_model.save(root, str(path), signatures=signatures)
    except AssertionError as error:
        raise ValueError(
            f"the function reads a resource that could not be found, so that it can't be saved: {error}. Keep it in a "
            "module global or an attribute of a tf.Module, or pass its owner"
        ) from error


def bucket_signature(bucket: Bucket) -> str:
    """Return the signature's name of one bucket."""
    return "bucket_" + "x".join(map(str, (bucket.rows, *bucket.lengths)))


def _of_vectorized(vectorized: Vectorized, owner: Any) -> BatchedGraphs:
    function = vectorized.function
    return BatchedGraphs(
        inputs=function.inputs,
        axes=vectorized.axes,
        outputs=vectorized.outputs,
        graphs=vectorized.graphs,
        owners=(*function.variables, *resources_of(function.target), *([] if owner is None else [owner])),
    )


def _any_rows(entry: BatchedGraphs) -> Any:
    """Return the ConcreteFunction that takes any number of rows."""
    specs = {name: tf.TensorSpec([None, *spec.shape], spec.dtype, name=name) for name, spec in entry.inputs.items()}

    def any_rows(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return _AnyRows(entry, inputs).answers()

    return tf.function(any_rows, autograph=False).get_concrete_function(**specs)


def _with_lengths(entry: BatchedGraphs) -> list[Output]:
    """Return the outputs, and after them the true sizes of those that differ from row to row."""
    graph = next(iter(entry.graphs.values()))
    return [
        *entry.outputs,
        *(
            Output(name=name, dtype=graph.structured_outputs[name].dtype, dims=())
            for output in entry.outputs
            for name in output.length_names.values()
        ),
    ]


class _AnyRows:
    """One request's rows in the graph: how many there are, how long, and what each bucket makes of them."""

    def __init__(self, entry: BatchedGraphs, inputs: Mapping[str, tf.Tensor]) -> None:
        self._entry = entry
        counts = [tf.shape(value)[0] for value in inputs.values()]
        sizes = [tf.shape(inputs[axis.dims[0][0]])[axis.dims[0][1] + 1] for axis in entry.axes]
        checks = [
            *(
                tf.debugging.assert_equal(count, counts[0], message="inputs have different numbers of rows")
                for count in counts[1:]
            ),
            *(
                tf.debugging.assert_less_equal(size, axis.max, message=f"{axis.name}: longer than {axis.max}")
                for axis, size in zip(entry.axes, sizes, strict=True)
            ),
        ]
        with tf.control_dependencies([check for check in checks if check is not None]):
            self._inputs = {name: tf.identity(value) for name, value in inputs.items()}
        self._n = counts[0]
        self._sizes = sizes
        self._rows = sorted({bucket.rows for bucket in entry.graphs})
        self._outputs = _with_lengths(entry)
        self._lengths = list(dict.fromkeys(bucket.lengths for bucket in entry.graphs))

    def answers(self) -> dict[str, tf.Tensor]:
        """Return every output for every row, in the order of the rows."""
        largest = self._rows[-1]
        flat = tf.cond(self._n > largest, lambda: self._chunked(largest), lambda: self._in_one(self._inputs, self._n))
        answers = {}
        for output, value in zip(self._outputs, flat, strict=True):
            value.set_shape([None, *(dim if isinstance(dim, int) else None for dim in output.dims)])
            answers[output.name] = value
        return answers

    def _in_one(self, inputs: Mapping[str, tf.Tensor], n: tf.Tensor) -> list[tf.Tensor]:
        branches = [self._nothing]
        branches += [lambda rows=rows: self._in_bucket(inputs, n, rows) for rows in self._rows]  # type: ignore[misc]
        index = tf.reduce_sum(tf.cast(n > [0, *self._rows[:-1]], tf.int32))
        return list(tf.switch_case(index, branches))

    def _nothing(self) -> list[tf.Tensor]:
        return [tf.zeros([0, *map(self._size, output.dims)], output.dtype) for output in self._outputs]

    def _size(self, dim: int | Axis | None) -> Any:
        """Return how large a dimension of a result is in this request; 0 where each row has its own."""
        if isinstance(dim, Axis):
            return self._sizes[[axis.name for axis in self._entry.axes].index(dim.name)]
        return dim or 0

    def _in_bucket(self, inputs: Mapping[str, tf.Tensor], n: tf.Tensor, rows: int) -> list[tf.Tensor]:
        padded = {
            name: tf.concat([value, tf.repeat(value[:1], rows - n, axis=0)], axis=0) for name, value in inputs.items()
        }
        return [value[:n] for value in self._by_length(padded, rows)]

    def _by_length(self, inputs: Mapping[str, tf.Tensor], rows: int) -> list[tf.Tensor]:
        """Run a full bucket of rows at the smallest lengths that hold them."""
        graphs = self._entry.graphs
        if not self._entry.axes:
            return self._call(graphs[Bucket(rows=rows)], inputs)
        holds = [
            tf.reduce_all([size <= most for size, most in zip(self._sizes, lengths, strict=True)])
            for lengths in self._lengths
        ]
        branches = [
            lambda lengths=lengths: self._at_length(inputs, Bucket(rows=rows, lengths=lengths))
            for lengths in self._lengths
        ]
        # The first that holds them is the smallest: lengths ascend, the last axis fastest.
        return list(tf.switch_case(tf.argmax(tf.stack(holds), output_type=tf.int32), branches))

    def _at_length(self, inputs: Mapping[str, tf.Tensor], bucket: Bucket) -> list[tf.Tensor]:
        padded = {}
        for name, spec in self._entry.inputs.items():
            shape = (bucket.rows, *shape_in(name, spec, self._entry.axes, bucket))
            missing = tf.constant(shape) - tf.shape(inputs[name])
            widened = tf.pad(inputs[name], tf.stack([tf.zeros_like(missing), missing], axis=1)) if shape[1:] else None
            padded[name] = inputs[name] if widened is None else tf.ensure_shape(widened, shape)
        return [
            value[(slice(None), *(slice(self._size(dim) if isinstance(dim, Axis) else None) for dim in output.dims))]
            for output, value in zip(self._outputs, self._call(self._entry.graphs[bucket], padded), strict=True)
        ]

    def _call(self, graph: Any, inputs: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        _, specs = graph.structured_input_signature
        results = graph(**{name: tf.ensure_shape(inputs[name], spec.shape) for name, spec in specs.items()})
        return [results[output.name] for output in self._outputs]

    def _chunked(self, largest: int) -> list[tf.Tensor]:
        """Run chunks of the largest bucket one after the other; the last is filled up."""
        n_chunks = -(-self._n // largest)
        filled = {
            name: tf.concat([value, tf.repeat(value[:1], n_chunks * largest - self._n, axis=0)], axis=0)
            for name, value in self._inputs.items()
        }
        arrays = [tf.TensorArray(output.dtype, size=n_chunks, infer_shape=False) for output in self._outputs]

        def step(chunk: tf.Tensor, *written: tf.TensorArray) -> tuple[Any, ...]:
            first = chunk * largest
            rows = {name: value[first : first + largest] for name, value in filled.items()}
            results = self._by_length(rows, largest)
            return chunk + 1, *(array.write(chunk, value) for array, value in zip(written, results, strict=True))

        _, *written = tf.while_loop(lambda chunk, *_: chunk < n_chunks, step, (0, *arrays))
        return [array.concat()[: self._n] for array in written]

"""What one example of a model looks like: the contract between callers, codecs, builder and engine.

A variable dimension has a name here (a *length axis*), so that inputs that must have the same length, the
length that the function is told, and the outputs that are cut back all speak of the same thing. A shape is a
tuple of sizes and axis names: ``("n", 32)`` is a sequence of at most ``axis("n").max`` vectors of 32 numbers.

This module is a leaf: standard library only, so that every layer may use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

__all__ = ["STRING", "Dim", "LengthAxis", "ModelSignature", "TensorSignature"]

#: The dtype name of byte strings; every other dtype has its NumPy name (``float32``, ``bool``, ``bfloat16``).
STRING = "string"

#: A fixed size, or the name of a length axis. In an output a name that is no axis' is that of a further output of the
#: compiled graphs, which tells the size for each row: it depends on the example in a way of the model's own.
Dim = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthAxis:
    """A dimension whose size differs from example to example.

    ``max`` is the longest length that is accepted; ``buckets`` are the padded lengths that have compiled
    graphs, ascending, the last one equal to ``max``. ``length_input`` names the scalar input of the function
    that is told the true length (callers never send it), ``length_dtype`` its dtype.
    """

    name: str
    max: int
    buckets: tuple[int, ...]
    length_input: str | None = None
    length_dtype: str = "int32"

    def bucket_for(self, length: int) -> int:
        """Return the smallest compiled length that holds ``length``; ValueError if there is none."""
        for size in self.buckets:
            if length <= size:
                return size
        raise ValueError(f"length {length} is over the largest bucket {self.buckets[-1]} of axis {self.name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSignature:
    """Name, dtype and per-example shape of one input or output. ``()`` is a scalar.

    ``is_optional``: callers may leave the input out; the server then draws a seed for it.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    is_optional: bool = False

    @property
    def is_fixed(self) -> bool:
        """True if no dimension varies between examples."""
        return all(isinstance(dim, int) for dim in self.shape)

    def padded_shape(self, lengths: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape with every length axis replaced by its size in ``lengths``."""
        return tuple(dim if isinstance(dim, int) else lengths[dim] for dim in self.shape)


@dataclass(frozen=True, kw_only=True)
class ModelSignature:
    """Inputs that callers send, outputs that they get, and the length axes of both.

    Order is significant and kept: staging arrays, codecs and compiled graphs all use it. Length inputs are
    not among ``inputs``; the compiled graphs take them after the inputs, in the order of ``axes``.
    """

    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]
    axes: tuple[LengthAxis, ...] = ()

    @cached_property
    def axis_index(self) -> dict[str, int]:
        """Position of each length axis by name."""
        return {axis.name: index for index, axis in enumerate(self.axes)}

    @cached_property
    def length_outputs(self) -> tuple[str, ...]:
        """Further outputs of the compiled graphs, int32 ``[rows]`` each: sizes of outputs that no axis tells."""
        return tuple(
            dim
            for tensor in self.outputs
            for dim in tensor.shape
            if isinstance(dim, str) and dim not in self.axis_index
        )

    @cached_property
    def has_lengths(self) -> bool:
        """True if examples may differ in shape."""
        return bool(self.axes)

    @cached_property
    def required(self) -> tuple[TensorSignature, ...]:
        """The inputs that every example must have."""
        return tuple(tensor for tensor in self.inputs if not tensor.is_optional)

    @cached_property
    def without_optional(self) -> ModelSignature:
        """The signature of a request that leaves out what it may."""
        return self if self.required == self.inputs else replace(self, inputs=self.required)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; ``from_json`` takes them back."""
        return {
            "inputs": [asdict(tensor) for tensor in self.inputs],
            "outputs": [asdict(tensor) for tensor in self.outputs],
            "axes": [asdict(axis) for axis in self.axes],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ModelSignature:
        """Build from what ``to_json`` returned. Errors: KeyError and TypeError on anything else."""

        def tensor(entry: Mapping[str, Any]) -> TensorSignature:
            return TensorSignature(
                name=entry["name"],
                dtype=entry["dtype"],
                shape=tuple(entry["shape"]),
                is_optional=entry.get("is_optional", False),
            )

        return cls(
            inputs=tuple(tensor(entry) for entry in value["inputs"]),
            outputs=tuple(tensor(entry) for entry in value["outputs"]),
            axes=tuple(LengthAxis(**{**entry, "buckets": tuple(entry["buckets"])}) for entry in value["axes"]),
        )

"""What the client has to know of a model to talk to it: its inputs, and its outputs' dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rowwise.errors import BadAnswer

__all__ = ["RemoteSignature"]

#: Names of the TensorFlow protobuf enumeration DataType whose NumPy name isn't just theirs in small letters.
_NUMPY_NAMES = {"DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_HALF": "float16", "DT_BFLOAT16": "float32"}


Shape = tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSignature:
    """Names of the inputs that callers send, and of the outputs with their dtype (None: strings).

    Shapes: those of one example, None where examples differ; None altogether where the metadata does not say.
    """

    inputs: tuple[str, ...]
    #: Those of the inputs that callers may leave out.
    optional: frozenset[str] = frozenset()
    outputs: Mapping[str, np.dtype[Any] | None]
    #: As far as they are known.
    input_dtypes: Mapping[str, np.dtype[Any] | None] = field(default_factory=dict)
    input_shapes: Mapping[str, Shape] = field(default_factory=dict)
    output_shapes: Mapping[str, Shape] = field(default_factory=dict)

    @property
    def known(self) -> frozenset[str]:
        """All inputs."""
        return frozenset(self.inputs)

    @property
    def required(self) -> tuple[str, ...]:
        """The inputs that every example must have."""
        return tuple(name for name in self.inputs if name not in self.optional)

    @classmethod
    def from_metadata(cls, metadata: Any, *, signature: str = "serving_default") -> RemoteSignature:
        """Read the answer of ``GET /v1/models/{m}/metadata``. Errors: BadAnswer."""
        try:
            signatures = metadata["metadata"]["signature_def"]["signature_def"]
            chosen = signatures.get(signature) or next(iter(signatures.values()))
            inputs, outputs = chosen["inputs"], chosen["outputs"]
            return cls(
                inputs=tuple(inputs),
                optional=frozenset(metadata["metadata"].get("optional_inputs", ())),
                outputs={name: _dtype(tensor["dtype"]) for name, tensor in outputs.items()},
                input_dtypes={name: _dtype_as_sent(tensor.get("dtype")) for name, tensor in inputs.items()},
                input_shapes={name: _shape(tensor) for name, tensor in inputs.items()},
                output_shapes={name: _shape(tensor) for name, tensor in outputs.items()},
            )
        except (AttributeError, KeyError, StopIteration, TypeError, ValueError) as error:
            raise BadAnswer(f"the server's metadata does not describe a model: {error!r}") from error


def _shape(tensor: Mapping[str, Any]) -> Shape:
    """Return the shape of one example: what follows the dimension that counts them."""
    told = tensor.get("tensor_shape", {})
    if told.get("unknown_rank"):
        return None
    sizes = [int(dim["size"]) for dim in told.get("dim", ())]
    return tuple(None if size < 0 else size for size in sizes[1:]) if sizes else None


def _dtype_as_sent(name: str | None) -> np.dtype[Any] | None:
    """Return NumPy's dtype of an input; None for what it has none for, strings among them."""
    return None if name in {None, "DT_BFLOAT16", "DT_STRING"} else _dtype(str(name))


def _dtype(name: str) -> np.dtype[Any] | None:
    if name == "DT_STRING":
        return None
    return np.dtype(_NUMPY_NAMES.get(name, name.removeprefix("DT_").lower()))

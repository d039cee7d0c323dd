"""What the client has to know of a model to talk to it: its inputs, and its outputs' dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rowwise.errors import BadAnswer

__all__ = ["RemoteSignature"]

#: Names of the TensorFlow protobuf enumeration DataType whose NumPy name isn't just theirs in small letters.
_NUMPY_NAMES = {"DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_HALF": "float16", "DT_BFLOAT16": "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSignature:
    """Names of the inputs that callers send, and of the outputs with their dtype (None: strings)."""

    inputs: tuple[str, ...]
    #: Those of the inputs that callers may leave out.
    optional: frozenset[str] = frozenset()
    outputs: Mapping[str, np.dtype[Any] | None]

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
            return cls(
                inputs=tuple(chosen["inputs"]),
                optional=frozenset(metadata["metadata"].get("optional_inputs", ())),
                outputs={name: _dtype(tensor["dtype"]) for name, tensor in chosen["outputs"].items()},
            )
        except (AttributeError, KeyError, StopIteration, TypeError) as error:
            raise BadAnswer(f"the server's metadata does not describe a model: {error!r}") from error


def _dtype(name: str) -> np.dtype[Any] | None:
    if name == "DT_STRING":
        return None
    return np.dtype(_NUMPY_NAMES.get(name, name.removeprefix("DT_").lower()))

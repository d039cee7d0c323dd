"""What the vectorizer refuses, and why.

::

    VectorizerError
    ├── TraceError            the function could not be traced for one example
    ├── BatchDimensionError   what was taken for a batch's rows depends on each other
    ├── DeclarationError      inputs, buckets or lengths were declared wrongly
    ├── LoopedOpError         strict mode: ops that would run once per row
    ├── SideEffectError       an effect that a batch would run once, not once per row
    ├── ConversionError       pfor failed on an op
    ├── ProbeError            no example could be found on which the function answers
    └── ParityError           a batched graph does not match the per-example function
"""

from __future__ import annotations

from vectorizer.certificate import OpRecord

__all__ = [
    "BatchDimensionError",
    "ConversionError",
    "DeclarationError",
    "LoopedOpError",
    "ParityError",
    "ProbeError",
    "SideEffectError",
    "TraceError",
    "VectorizerError",
]


class VectorizerError(Exception):
    """The function can't be served by the batch as it is. The message names the place and the next step."""


class TraceError(VectorizerError):
    """Tracing the function for one example raised."""


class DeclarationError(VectorizerError):
    """The declared inputs, lengths or buckets contradict each other or the function."""


class BatchDimensionError(VectorizerError):
    """A function of batches can't be served by the example: it has no row for each, or mixes them."""


class LoopedOpError(VectorizerError):
    """Some ops have no batched form and ``allow_looped`` does not name them.

    ``ops`` maps op type to places; ``records`` say of each why, and what to write instead.
    """

    def __init__(self, message: str, *, ops: dict[str, tuple[str, ...]], records: tuple[OpRecord, ...]) -> None:
        super().__init__(message)
        self.ops = ops
        self.records = records


class SideEffectError(VectorizerError):
    """The function prints, asserts, assigns or calls Python: a batch can't do that once for each row."""


class ConversionError(VectorizerError):
    """An op could not be converted. ``__cause__`` is what its converter raised."""


class ProbeError(VectorizerError):
    """The per-example function raised on every probe input, so nothing could be checked."""


class ParityError(VectorizerError):
    """A bucket's answers differ from the per-example function's by more than the tolerance."""

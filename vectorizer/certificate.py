"""The record of how each op was vectorized and how the result was checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Certificate", "OpClass", "OpRecord", "OutputParity", "ParityRecord"]


class OpClass(StrEnum):
    """How an op of the per-example function runs in the batched graphs."""

    VECTORIZED = "vectorized"  #: once for all rows, on stacked values
    INVARIANT = "invariant"  #: once, as it does not depend on the example
    LOOPED = "looped"  #: once for each row


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRecord:
    """All ops of one type that were treated alike. ``where`` lists their places in the user's code."""

    op: str
    kind: OpClass
    count: int
    where: tuple[str, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputParity:
    """The largest difference of one output from the per-example function's, over all rows of a bucket.

    ``max_abs`` is absolute; ``max_relative`` is relative to the largest magnitude of the row that it is in;
    ``max_ulp`` counts representable numbers in between (None for dtypes that have none).
    """

    name: str
    max_abs: float
    max_relative: float
    max_ulp: int | None
    bitwise_equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityRecord:
    """The check of one bucket: ``n_examples`` different examples, one in each row."""

    rows: int
    lengths: tuple[int, ...]
    n_examples: int
    outputs: tuple[OutputParity, ...]

    @property
    def max_abs(self) -> float:
        """Largest absolute difference of any output."""
        return max((output.max_abs for output in self.outputs), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was done and checked. ``loops_batched`` is the largest number of any bucket."""

    function: str
    tensorflow_version: str
    ops: tuple[OpRecord, ...]
    loops_unbatched: int
    loops_batched: int
    parity: tuple[ParityRecord, ...]
    n_probes_refused: int = 0
    #: What the comparison allowed, relative to a row's largest magnitude, by dtype.
    tolerance: dict[str, float]

    @property
    def looped(self) -> tuple[OpRecord, ...]:
        """The ops that run once for each row."""
        return tuple(self._of(OpClass.LOOPED))

    def count(self, kind: OpClass) -> int:
        """Return how many ops were treated so."""
        return sum(record.count for record in self._of(kind))

    def _of(self, kind: OpClass) -> Iterator[OpRecord]:
        return (record for record in self.ops if record.kind is kind)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "format_version": 1,
            **asdict(self),
            "summary": {
                **{kind.value: self.count(kind) for kind in OpClass},
                "buckets_checked": len(self.parity),
                "max_abs": max((record.max_abs for record in self.parity), default=0.0),
            },
        }

    def to_json(self) -> str:
        """Return the certificate as JSON text. Not-a-number and infinities do not occur in it."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

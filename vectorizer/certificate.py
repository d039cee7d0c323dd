"""The record of how each op was vectorized and how the result was checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from vectorizer.certificate_text import certificate_text

__all__ = ["Certificate", "MadeBy", "OpClass", "OpRecord", "OutputParity", "Padding", "ParityRecord", "ProbeCounts"]


class OpClass(StrEnum):
    """How an op of the per-example function runs in the batched graphs."""

    VECTORIZED = "vectorized"  #: once for all rows, on stacked values
    INVARIANT = "invariant"  #: once, as it does not depend on the example
    OWN_BATCH = "own_batch"  #: as the model itself, which is written for batches, takes a batch of this size
    SEEDED = "seeded"  #: once for all rows, drawing random numbers from each row's own seed
    LOOPED = "looped"  #: once for each row, by permission
    REFUSED = "refused"  #: it would run once for each row; only a LoopedOpError holds such records


class MadeBy(StrEnum):
    """Whose converter vectorized an op."""

    PFOR = "pfor"  #: TensorFlow's own
    ROWWISE = "rowwise"  #: ours
    CALLER = "caller"  #: given to ``vectorize(converters=...)``


class Padding(StrEnum):
    """What was found about the values that fill an example up to a bucket's length."""

    NONE = "none"  #: the bucket pads nothing
    IGNORED = "ignored"  #: no answer depends on them
    ZEROS = "zeros"  #: right with zeros, which is what the server pads with; other values would matter


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRecord:
    """All ops of one type that were treated alike. ``where`` lists their places in the user's code.

    ``fix`` says what to write instead of an op that is looped. ``converter`` tells whose one it was, None if there was
    nothing to convert. ``can_raise``: some value of a row makes the op fail, and with it the batch that the row is in.
    """

    op: str
    kind: OpClass
    count: int
    where: tuple[str, ...]
    reason: str | None = None
    fix: str | None = None
    converter: MadeBy | None = None
    can_raise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputParity:
    """The largest difference of one output from the per-example function's, over all rows of a bucket.

    ``max_abs`` is absolute; ``max_relative`` is relative to the largest magnitude of the row that it is in;
    ``max_ulp`` counts representable numbers in between (None for dtypes that have none). ``worst`` shows the example
    with the largest relative difference and both answers, if the answers are not the same bits.
    """

    name: str
    max_abs: float
    max_relative: float
    max_ulp: int | None
    bitwise_equal: bool
    #: False if a zero had the other sign somewhere, which counts as no difference.
    signed_zeros_equal: bool = True
    worst: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityRecord:
    """The check of one bucket: ``n_examples`` different examples, one in each row.

    ``n_unstable`` examples, extreme or constant ones, were left out, because rounding alone changes the function's own
    answer to them. ``steady``: an example's bits were the same in every slot and beside every neighbour that was tried.
    """

    rows: int
    lengths: tuple[int, ...]
    n_examples: int
    outputs: tuple[OutputParity, ...]
    n_unstable: int = 0
    padding: Padding = Padding.NONE
    steady: bool = True

    @property
    def max_abs(self) -> float:
        """Largest absolute difference of any output."""
        return max((output.max_abs for output in self.outputs), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCounts:
    """How many examples of each sort the function answered, and which it did not end on."""

    yours: int = 0
    edge: int = 0
    extreme: int = 0
    random: int = 0
    #: Extreme examples on which the function was stopped: a caller who sends one holds up everybody in its batch.
    unending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was done and checked. ``loops_batched`` is the largest number of any bucket.

    ``bitwise_groups`` are buckets, ``(rows, *lengths)`` each, that gave the same bits for every example: which of
    them an example is served from makes no difference. The largest group comes first.
    """

    function: str
    tensorflow_version: str
    ops: tuple[OpRecord, ...]
    loops_unbatched: int
    loops_batched: int
    parity: tuple[ParityRecord, ...]
    n_probes_refused: int = 0
    probes: ProbeCounts = ProbeCounts()
    bitwise_groups: tuple[tuple[tuple[int, ...], ...], ...] = ()
    #: Op types of the batched graphs that XLA drops (asserts) or computes otherwise: they are not to be compiled by it.
    not_for_xla: tuple[str, ...] = ()
    #: False if a size in the batched graphs is known only when they run, which XLA can't compile: what a loop without a
    #: visible bound keeps for its gradient, the tokens of a text.
    sizes_known: bool = True
    #: What the comparison allowed, relative to a row's largest magnitude, by dtype.
    tolerance: dict[str, float]

    @property
    def looped(self) -> tuple[OpRecord, ...]:
        """The ops that run once for each row."""
        return tuple(self._of(OpClass.LOOPED))

    @property
    def can_raise(self) -> tuple[OpRecord, ...]:
        """The ops that fail on some value of a row."""
        return tuple(record for record in self.ops if record.can_raise)

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
                **{kind.value: self.count(kind) for kind in OpClass if kind is not OpClass.REFUSED},
                "can_raise": sum(record.count for record in self.can_raise),
                "buckets_checked": len(self.parity),
                "max_abs": max((record.max_abs for record in self.parity), default=0.0),
            },
        }

    def to_json(self) -> str:
        """Return the certificate as JSON text. Not-a-number and infinities do not occur in it."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def to_text(self) -> str:
        """Return the certificate as text for people."""
        return certificate_text(self.to_dict())

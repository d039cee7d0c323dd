"""How the answers of two versions to the same rows differ: what a shadow reports."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from server.protocol import Column
from server.signature import ModelSignature

__all__ = ["Comparison", "OutputDifference"]

#: Largest difference that counts as none, in steps of the dtype at the largest magnitude of the row: what sums of
#: some thousand terms in another order come to. What is no float must be equal.
_TOLERANCE_EPS = 1_000
#: Rows of small numbers are compared absolutely, as if their largest were this.
_SMALL = 0.1
#: Batches whose ratio of times is remembered.
_N_RATIOS = 512

_BITS: dict[int, Any] = {2: np.int16, 4: np.int32, 8: np.int64}

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class OutputDifference:
    """How far one output's rows are apart: the largest difference, and how many rows are beyond tolerance."""

    max_abs: float = 0.0
    max_ulp: float = 0.0
    n_rows_differing: int = 0
    n_rows_of_other_shape: int = 0

    def add(self, live: Array, candidate: Array) -> bool:
        """Compare one row; return True if it is within tolerance. Not-a-number equals itself."""
        if live.shape != candidate.shape or live.dtype != candidate.dtype:
            self.n_rows_of_other_shape += 1
            return False
        if live.dtype.kind in "biuSUO":
            is_near = bool(np.array_equal(live, candidate))
        else:
            is_near = self._add_floats(live, candidate)
        self.n_rows_differing += not is_near
        return is_near

    def _add_floats(self, live: Array, candidate: Array) -> bool:
        if live.tobytes() == candidate.tobytes():
            return True
        wide = np.complex128 if live.dtype.kind == "c" else np.float64
        a, b = live.astype(wide), candidate.astype(wide)
        with np.errstate(all="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            apart = np.where(same, 0.0, np.abs(a - b))
            if not np.isfinite(apart).all():
                self.max_abs = float(np.finfo(np.float64).max)
                return False
            largest = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
            steps = np.where(_places(live) == _places(candidate), 0.0, np.abs(_places(live) - _places(candidate)))
            self.max_ulp = max(self.max_ulp, float(steps.max(initial=0.0)))
        distance = float(apart.max(initial=0.0))
        self.max_abs = max(self.max_abs, distance)
        return distance <= _TOLERANCE_EPS * _eps(live.dtype) * max(largest, _SMALL)


@dataclass(slots=True)
class Comparison:
    """What is known of a candidate so far. ``compare`` is the shadow's thread's, all else the event loop's."""

    n_batches: int = 0
    n_rows: int = 0
    n_rows_differing: int = 0
    #: Batches that the candidate failed on, and that were left out because others were not compared yet.
    n_failed: int = 0
    n_dropped: int = 0
    last_error: str = ""
    outputs: dict[str, OutputDifference] = field(default_factory=dict)
    #: By batch, the candidate's time over the live version's.
    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=_N_RATIOS))

    def add(self, n_rows: int, n_differing: int, *, ratio: float) -> None:
        """Count a batch that was compared."""
        self.n_batches += 1
        self.n_rows += n_rows
        self.n_rows_differing += n_differing
        self.ratios.append(ratio)

    def compare(
        self,
        signature: ModelSignature,
        entry: str,
        live: Sequence[Column],
        candidate: Sequence[Column],
        lengths: Sequence[tuple[int, ...] | None],
    ) -> int:
        """Compare two batches' outputs, each row cut to its true lengths; return how many rows differ."""
        differing: set[int] = set()
        for tensor, one, other in zip(signature.outputs, live, candidate, strict=True):
            name = tensor.name if entry == "predict" else f"{entry}.{tensor.name}"
            found = self.outputs.setdefault(name, OutputDifference())
            for row, true in enumerate(lengths):
                cut: Any = ...
                if true is not None and not tensor.is_fixed:
                    index = signature.axis_index
                    cut = tuple(slice(true[index[dim]]) if dim in index else slice(None) for dim in tensor.shape)
                if not found.add(np.asarray(one[row])[cut], np.asarray(other[row])[cut]):
                    differing.add(row)
        return len(differing)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types. ``time_ratio`` is the median; None before there is one."""
        return {
            "batches": self.n_batches,
            "rows": self.n_rows,
            "rows_differing": self.n_rows_differing,
            "failed": self.n_failed,
            "dropped": self.n_dropped,
            "last_error": self.last_error,
            "time_ratio": round(statistics.median(self.ratios), 3) if self.ratios else None,
            "outputs": {
                name: {
                    "max_abs": each.max_abs,
                    "max_ulp": round(each.max_ulp, 1),
                    "rows_differing": each.n_rows_differing,
                    "rows_of_other_shape": each.n_rows_of_other_shape,
                }
                for name, each in list(self.outputs.items())
            },
        }


def _places(values: Array) -> Array:
    """Return where floats stand in the order of their dtype's numbers; not-a-number stands at infinity."""
    reals = np.ascontiguousarray(values).view(values.real.dtype)
    integer = _BITS[reals.dtype.itemsize]
    bits = reals.view(integer).astype(np.float64)
    # Negative numbers are mirrored, so that -0 and +0 are one place.
    places: Array = np.where(bits < 0, float(np.iinfo(integer).min) - bits, bits)
    return np.where(np.isnan(reals.astype(np.float64)), np.inf, places)


def _eps(dtype: np.dtype[Any]) -> float:
    if dtype.name == "bfloat16":
        return 2.0**-7
    return float(np.finfo(dtype).eps)

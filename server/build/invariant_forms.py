"""Which form serves each bucket where a model is to be served in invariant mode.

The fastest form of every bucket may be the graph here and XLA there, which round differently. So each compiler's
forms are checked for bits on their own, and at each padded length that set of one compiler is taken which serves most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from server.artifact import Bucket as Size
from server.artifact import CompiledGraph
from server.build.errors import BuildFailed
from server.build.measure import Measurement
from server.build.served_check import check_served
from server.invariant import best_group, invariant_set, may_be_invariant, row_cost_s
from vectorizer import Bucket, Vectorized

__all__ = ["AgreeingForms", "invariant_costs", "refuse_unless_invariant"]


class AgreeingForms:
    """The forms of one entry point that may serve in invariant mode, in sets that agree to the bit."""

    def __init__(self, groups: Sequence[Sequence[Measurement]]) -> None:
        self._groups = groups

    @classmethod
    def find(
        cls,
        vectorized: Vectorized,
        saved_model: Path,
        measurements: Iterable[Measurement],
        *,
        tolerance: float | None,
        entry: str,
    ) -> AgreeingForms:
        """Check the fastest form of each bucket and compiler; those that fail get their error."""
        fastest: dict[str, dict[Bucket, Measurement]] = {}
        for each in measurements:
            mode, bucket = each.candidate.mode, each.candidate.bucket
            if each.error is None and may_be_invariant(bucket.rows, mode):
                known = fastest.setdefault(mode.compiler, {}).get(bucket)
                if known is None or each.cost_s < known.cost_s:
                    fastest[mode.compiler][bucket] = each
        groups: list[Sequence[Measurement]] = []
        for by_bucket in fastest.values():
            checked = check_served(
                vectorized,
                saved_model,
                {bucket: each.candidate.mode for bucket, each in by_bucket.items()},
                tolerance=tolerance,
                entry=entry,
            )
            for bucket, reason in checked.unfaithful.items():
                by_bucket[bucket].error = reason
            by_size = {(bucket.rows, *bucket.lengths): each for bucket, each in by_bucket.items()}
            groups += [[by_size[size] for size in group] for group in checked.bits.steady_groups()]
        return cls(groups)

    def choose(self, buckets: Iterable[Bucket]) -> dict[Bucket, Measurement]:
        """Return the best set at each padded length of ``buckets``, which are the buckets to choose from.

        Errors: BuildFailed naming a length at which nothing qualifies.
        """
        allowed = set(buckets)
        chosen: dict[Bucket, Measurement] = {}
        for lengths in dict.fromkeys(bucket.lengths for bucket in sorted(allowed)):
            best = best_group(
                [
                    each
                    for each in group
                    if each.error is None
                    and each.candidate.bucket in allowed
                    and each.candidate.bucket.lengths == lengths
                ]
                for group in self._groups
            )
            if not best:
                raise BuildFailed("NotInvariant", _refusal(lengths))
            chosen |= {each.candidate.bucket: each for each in best}
        return chosen


def invariant_costs(
    graphs: Iterable[CompiledGraph], groups: Iterable[Sequence[Size]], *, free: Mapping[Bucket, Measurement]
) -> list[dict[str, Any]]:
    """Return for each padded length which buckets invariant mode serves from, and its throughput as a share of free's.

    ``free`` are the buckets and forms that serve best otherwise. No rows and a share of 0: nothing qualifies.
    """
    by_lengths: dict[tuple[int, ...], list[CompiledGraph]] = {}
    for graph in graphs:
        by_lengths.setdefault(graph.lengths, []).append(graph)
    groups = list(groups)
    costs = []
    for lengths, of_length in by_lengths.items():
        served = invariant_set(of_length, groups)
        best_s = row_cost_s(each for bucket, each in free.items() if bucket.lengths == lengths)
        costs.append(
            {
                "lengths": list(lengths),
                "rows": [graph.rows for graph in served],
                "throughput_share": round(best_s / row_cost_s(served), 3) if served else 0.0,
            }
        )
    return costs


def refuse_unless_invariant(costs: Iterable[Mapping[str, Any]]) -> None:
    """Errors: BuildFailed naming a length at which nothing qualifies."""
    for each in costs:
        if not each["rows"]:
            raise BuildFailed("NotInvariant", _refusal(tuple(each["lengths"])))


def _refusal(lengths: tuple[int, ...]) -> str:
    where = f" at padded length {', '.join(map(str, lengths))}" if lengths else ""
    return (
        f"no bucket{where} can be served in invariant mode: in each, an example's bits depend on its neighbours; add a "
        "bucket of 1 row, or leave 'invariant' out"
    )

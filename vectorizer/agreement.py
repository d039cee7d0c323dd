"""Which buckets give the same bits: an example may be served from any of them, and nobody can tell."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vectorizer.parity import answer_bits

__all__ = ["AnswerBits"]

#: A bucket: rows, then the padded size of each length axis.
_Key = tuple[int, ...]


class AnswerBits:
    """The bits of every answer of every bucket, as digests."""

    def __init__(self) -> None:
        #: By bucket, then by probe: the answers it got, in whatever slot and beside whatever neighbours.
        self._seen: dict[_Key, dict[int, set[int]]] = {}

    def note(self, bucket: _Key, probe: int, answers: Iterable[np.ndarray]) -> None:
        """Record one answer (all outputs of one row) to the probe of that number."""
        digest = hash(tuple((answer.shape, answer_bits(answer)) for answer in answers))
        self._seen.setdefault(bucket, {}).setdefault(probe, set()).add(digest)

    def is_steady(self, bucket: _Key) -> bool:
        """Return True if slot and neighbours made no difference to any answer of the bucket."""
        return all(len(digests) == 1 for digests in self._seen.get(bucket, {}).values())

    def steady_groups(self) -> tuple[tuple[_Key, ...], ...]:
        """Return sets of steady buckets of the same padded lengths that agree on every probe.

        An example is always padded to the same length, so that whether others agree is nothing to it.
        """
        made: dict[tuple[object, ...], list[_Key]] = {}
        for bucket in sorted(filter(self.is_steady, self._seen)):
            answers = tuple(sorted((probe, *digests) for probe, digests in self._seen[bucket].items()))
            made.setdefault((bucket[1:], answers), []).append(bucket)
        return tuple(tuple(group) for group in sorted(made.values(), key=lambda group: (-len(group), group)))

    def groups(self) -> tuple[tuple[_Key, ...], ...]:
        """Return sets of buckets that agree on every probe that they have in common; each bucket is in one.

        The largest set comes first. A bucket whose answers depend on the slot agrees with none.
        """
        made: list[list[_Key]] = []
        for bucket in sorted(self._seen):
            for group in made:
                if all(self._agree(bucket, member) for member in group):
                    group.append(bucket)
                    break
            else:
                made.append([bucket])
        return tuple(tuple(group) for group in sorted(made, key=lambda group: (-len(group), group)))

    def _agree(self, one: _Key, other: _Key) -> bool:
        if not (self.is_steady(one) and self.is_steady(other)):
            return False
        a, b = self._seen[one], self._seen[other]
        common = a.keys() & b.keys()
        return bool(common) and all(a[probe] == b[probe] for probe in common)

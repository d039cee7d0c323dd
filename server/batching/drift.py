"""Costs that change while a model serves: a busier machine, a warmer cache, another clock rate.

Theory of operation. Each batch says whether it took longer than expected or not; how much does not matter, so that one
batch that was interrupted moves nothing. The expectation moves a small step towards it, which makes it follow the
median. Two factors are moved: one that all buckets share, because what changes one mostly changes all, and that of the
bucket itself, which is forgotten a little with each batch of others: a bucket that is no longer chosen would never be
able to say that it has become quicker.

What the planner works with is replaced only once it is off by ``_TELL_FROM``, as working out its rules takes time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

__all__ = ["CostDrift"]

#: Steps of the logarithm for each batch: a change by half is followed within a hundred batches or so.
_STEP_ALL = 0.005
_STEP_ONE = 0.005
#: What is left of a bucket's own factor after a batch of another bucket.
_KEPT = 0.999
#: Each of the two factors stays within this one of what was measured when the model was built: four times at most.
_MOST = math.log(2.0)
_TELL_FROM = math.log(1.1)


class CostDrift:
    """Corrects the costs of one group's buckets. ``on_change`` is called with new costs, seconds by bucket.

    It is not called again before ``adopted`` has said that they are in use.
    """

    __slots__ = ("_all", "_in_use", "_measured_s", "_on_change", "_ones", "_told")

    def __init__(self, costs_s: Mapping[int, float], on_change: Callable[[Mapping[int, float]], None]) -> None:
        self._measured_s = dict(costs_s)
        self._on_change = on_change
        self._all = 0.0
        self._ones = dict.fromkeys(costs_s, 0.0)
        #: The logarithms of the factors in the costs that the planner has.
        self._in_use = dict(self._ones)
        self._told: dict[int, float] | None = None

    def ran(self, bucket: int, took_s: float) -> None:
        """Note that a batch has worked, and how long it took."""
        ones = self._ones
        now = self._all + ones[bucket]
        up = took_s > self._measured_s[bucket] * math.exp(now)
        for other in ones:
            ones[other] *= _KEPT
        self._all = _bounded(self._all + (_STEP_ALL if up else -_STEP_ALL))
        ones[bucket] = _bounded(ones[bucket] + (_STEP_ONE if up else -_STEP_ONE))
        if self._told is None and abs(self._all + ones[bucket] - self._in_use[bucket]) > _TELL_FROM:
            self._told = {of: self._all + one for of, one in ones.items()}
            self._on_change({of: self._measured_s[of] * math.exp(factor) for of, factor in self._told.items()})

    def adopted(self) -> None:
        """Note that the costs that were told are in use."""
        if self._told is not None:
            self._in_use, self._told = self._told, None


def _bounded(factor: float) -> float:
    return min(_MOST, max(-_MOST, factor))

"""Which bucket to run while rows keep arriving: the best rule for each load, computed when the costs are known.

Theory of operation
-------------------
A queue that one executor serves is a semi-Markov decision process. Its state is how many rows wait, ``w``; running
bucket ``b`` takes ``c(b)`` seconds, in which ``A`` more rows arrive, and leaves ``max(w - b, 0) + A``. With ``r`` rows
a second arriving, the rows wait ``w c + r c^2 / 2`` in total meanwhile. A rule (a bucket for each ``w``) is best if it
makes the mean waiting over time, ``g``, least; it is found by policy iteration: solve

    h(w) = w c + r c^2 / 2 - g c + E[h(max(w - b, 0) + A)],    h(0) = h(1) - g / r

for the rule at hand, let each state choose the bucket that makes the right side least, and repeat until none changes
(Howard, "Dynamic Programming and Markov Processes", 1960; some four rounds here). Looking at nothing but the rows that
wait is too hasty under load: what a full bucket saves, all who come later are spared.

Two approximations make it 4 ms a load. The states are every number of rows up to ``_EVERY_ROW`` and each 4 % further
one beyond it, with ``h`` quadratic in between and past the last one (were rows past it left out of account, a long
queue would choose small buckets, to lose more of them). And of the number of arrivals, which is taken to be Poisson,
there are ``_SLICES`` equally likely slices, each at its mean. Against the exact rule that loses 0.1 % of the waiting.

The rule depends on costs and rate only through the *load*: the rate times the least cost of a row, so that costs that
all grow alike need no new one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

__all__ = ["LoadRules"]

Floats = np.ndarray[Any, np.dtype[np.float64]]

#: Loads that have a rule: share of the best throughput that is asked for. The nearest one is taken.
_LOADS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
#: Up to here each number of rows is a state of its own.
_EVERY_ROW = 16
#: Beyond, states are this factor apart, and end at so many of the largest bucket.
_STEP = 1.04
_SPAN = 3
_SLICES = 9
#: More rounds than a rule ever takes.
_MAX_ROUNDS = 50
#: Mean arrivals up to which each count is looked at, and from which on they are as good as normally distributed.
_FEW, _MANY = 3.0, 400.0


class LoadRules:
    """The best bucket for a number of waiting rows, for each of some loads.

    Units: ``costs`` maps a bucket (rows) to seconds. Takes some 40 ms.
    """

    __slots__ = ("_rules", "_states", "most_rows")

    def __init__(self, costs: Mapping[int, float]) -> None:
        buckets = np.array(list(costs), dtype=np.float64)
        costs_s = np.array(list(costs.values()), dtype=np.float64)
        row_s = float((costs_s / buckets).min())
        states = _states(int(buckets.max()))
        rule = (costs_s[:, None] / np.minimum(buckets[:, None], states)).argmin(0)
        self._states = [int(rows) for rows in states]
        #: Beyond so many waiting rows there is no rule: throughput is what counts.
        self.most_rows = self._states[-1]
        self._rules: list[list[int]] = []
        for load in _LOADS:
            rule = _best_rule(buckets, costs_s, states, rate=load / row_s, rule=rule)
            self._rules.append([int(buckets[action]) for action in rule])

    @staticmethod
    def level(load: float) -> int | None:
        """Return which of the rules is for ``load``; None if it is so light that what arrives makes no difference."""
        if load < _LOADS[0] / 2:
            return None
        after = bisect_left(_LOADS, load)
        if after == len(_LOADS):
            return after - 1
        return after - 1 if after and load - _LOADS[after - 1] < _LOADS[after] - load else after

    def bucket(self, level: int, n_waiting: int) -> int:
        """Return the bucket to run when ``n_waiting`` rows wait, from 1 up to ``most_rows``."""
        return self._rules[level][bisect_left(self._states, n_waiting)]


def _states(largest: int) -> Floats:
    rows = list(range(1, _EVERY_ROW + 1))
    exact = float(rows[-1])
    while rows[-1] < _SPAN * largest:
        exact *= _STEP
        rows.append(max(rows[-1] + 1, round(exact)))
    return np.array(rows, dtype=np.float64)


def _best_rule(buckets: Floats, costs_s: Floats, states: Floats, *, rate: float, rule: Any) -> Any:
    """Improve ``rule``, an index into ``buckets`` for each state, until it is the best."""
    index = np.arange(len(states))
    nodes = np.concatenate([[0.0], states])
    moves = np.stack([_moves(nodes, bucket, rate * cost) for bucket, cost in zip(buckets, costs_s, strict=True)])
    waited = states * costs_s[:, None] + (rate * costs_s**2 / 2)[:, None]
    for _ in range(_MAX_ROUNDS):
        took, move = costs_s[rule], moves[rule, index]
        # The unknowns are h(2), h(3), ... and, in the place of h(1), which may be 0, the mean waiting g.
        system = np.eye(len(states)) - move[:, 1:]
        system[:, 0] = took + move[:, 0] / rate
        solved = np.linalg.solve(system, waited[rule, index])
        mean = solved[0]
        value = np.concatenate([[-mean / rate, 0.0], solved[1:]])
        total = waited - mean * costs_s[:, None] + moves @ value
        better = total.min(0) < total[rule, index] - 1e-9 * np.abs(total).max()
        if not better.any():
            break
        rule = np.where(better, total.argmin(0), rule)
    return rule


def _moves(nodes: Floats, bucket: float, n_arriving: float) -> Floats:
    """Return how likely each node follows each state if ``bucket`` runs.

    Between nodes the weights are those of interpolation, past the last one those of extrapolation; either way their sum
    is 1.
    """
    counts, chances = _arrivals(n_arriving)
    n_states = len(nodes) - 1
    after = np.maximum(nodes[1:] - bucket, 0.0)[:, None] + counts
    # Three neighbouring nodes, so that nothing is gained or lost between them by a value that grows as the square.
    middle = np.clip(np.searchsorted(nodes, after, side="right") - 1, 1, n_states - 1)
    first, second, third = nodes[middle - 1], nodes[middle], nodes[middle + 1]
    moves = np.zeros((n_states, n_states + 1))
    state = np.broadcast_to(np.arange(n_states)[:, None], middle.shape)
    for step, node, one, other in ((-1, first, second, third), (0, second, first, third), (1, third, first, second)):
        weight = (after - one) * (after - other) / ((node - one) * (node - other))
        np.add.at(moves, (state, middle + step), chances * weight)
    return moves


def _arrivals(mean: float) -> tuple[Floats, Floats]:
    """Return a few numbers of arrivals and how likely each is, for a Poisson distribution."""
    even = np.full(_SLICES, 1.0 / _SLICES)
    if mean > _MANY:
        middles = np.array([NormalDist().inv_cdf(at) for at in (np.arange(_SLICES) + 0.5) / _SLICES])
        return mean + math.sqrt(mean) * middles / math.sqrt(float(np.mean(middles**2))), even
    spread = 8.0 * math.sqrt(mean) + 12.0
    counts = np.arange(max(0, int(mean - spread)), int(mean + spread) + 1, dtype=np.float64)
    logs = counts * math.log(mean) - mean - np.array([math.lgamma(count + 1.0) for count in counts])
    chances = np.exp(logs)
    chances /= chances.sum()
    if mean < _FEW:
        return counts, chances
    below = np.concatenate([[0.0], np.cumsum(chances)])
    sums = np.concatenate([[0.0], np.cumsum(chances * counts)])
    edges = np.interp(np.linspace(0.0, 1.0, _SLICES + 1), below, sums)
    return np.diff(edges) * _SLICES, even

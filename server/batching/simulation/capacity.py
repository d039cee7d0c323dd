"""How many replicas a load takes: waiting in one queue before one executor, from measured costs, without simulating.

Theory of operation. Rows arrive at one replica as a Poisson process of ``rate`` rows a second: of many independent
callers, divided among replicas without regard to what they ask, that is what is left. The planner is asked whenever the
executor is free and takes ``b`` rows of ``w`` that wait; a batch takes what its bucket was measured to take, so that
how many more have come by its end is Poisson distributed too. Rows that wait at the moments of decision are therefore a
Markov chain in one number. Its steady state gives the share of time in batches of each size, and so what a row finds.

A row that arrives during a batch waits for the rest of it, a time that is uniformly distributed over the batch, and
then for the batches that take those before it. Which these are is worked out from how many came before the row and how
many after it in the rest of that batch; from the second batch on, the number that comes during a batch is taken for
its mean. That is the one approximation; ``tests/batching/simulation/test_capacity.py`` compares with the simulator.

Source: bulk service queues, M/D(b)/1 with the service time of the batch that is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from server.batching.costs import CostTable

__all__ = ["QueueWaiting", "ReplicaPlan", "most_rate", "plan_replicas", "waiting_at"]

#: Moments of a batch at which a row is taken to arrive, and quantiles of how many come after it.
_N_MOMENTS = 12
_N_AFTER = 5
#: Rows that wait beyond which nothing is looked at, in largest buckets; and probabilities that are not looked at.
_SPAN = 6
_LEAST_SPAN = 400
_LEAST = 1e-6
#: Batches that a row waits for at most: with one row a batch, as many as rows are looked at.
_MOST_BATCHES = 400
#: Share of the best throughput above which a queue is as good as unbounded.
_MOST_LOAD = 0.99
#: How closely the greatest rate is looked for.
_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWaiting:
    """What rows find at one replica. Waiting is from a row's arrival to its answer, seconds."""

    rate: float
    mean_s: float
    p50_s: float
    p99_s: float
    #: Share of the time in which the executor runs.
    busy: float
    #: Rows of a batch, on average over batches.
    batch_rows: float

    @property
    def rows_held(self) -> float:
        """Rows that wait or run, on average: what an autoscaler is to keep. Source: Little's law."""
        return self.rate * self.mean_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """How many replicas, and what rows find at each of them when all are there."""

    replicas: int
    #: Rows a second that one replica can take within the target.
    most_rate: float
    waiting: QueueWaiting


def plan_replicas(costs: CostTable, *, rate: float, p99_s: float, headroom: float = 0.0) -> ReplicaPlan:
    """Return how many replicas answer ``rate`` rows a second, 99 of 100 within ``p99_s``.

    ``headroom``: share of each replica's greatest rate that is kept for what is not foreseen.
    Errors: ValueError for a target that no replica can keep, or numbers that make no sense.
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise ValueError(f"rate is {rate!r}: expected rows a second, a positive number")
    if not 0 <= headroom < 1:
        raise ValueError(f"headroom is {headroom!r}: expected a share from 0 up to 1")
    most = most_rate(costs, p99_s=p99_s)
    replicas = max(1, math.ceil(rate / (most * (1 - headroom)) - 1e-9))
    return ReplicaPlan(replicas=replicas, most_rate=most, waiting=waiting_at(costs, rate=rate / replicas))


def most_rate(costs: CostTable, *, p99_s: float) -> float:
    """Return the rows a second that one replica takes with 99 of 100 answered within ``p99_s``.

    Errors: ValueError where even a lone row takes longer.
    """
    lone_s = costs.cost(costs.best(1))
    if not p99_s > lone_s:
        raise ValueError(
            f"a lone row takes {lone_s * 1e3:.3g} ms, and the target is {p99_s * 1e3:.3g} ms: no number of replicas "
            "keeps it; a quicker model or a higher target does"
        )
    low, high = 0.0, _MOST_LOAD / costs.row_s
    if waiting_at(costs, rate=high).p99_s <= p99_s:
        return high
    while high - low > _TOLERANCE * high:
        middle = (low + high) / 2
        if waiting_at(costs, rate=middle).p99_s <= p99_s:
            low = middle
        else:
            high = middle
    return low


def waiting_at(costs: CostTable, *, rate: float) -> QueueWaiting:
    """Return what rows find that arrive at ``rate`` a second at one replica.

    Errors: ValueError for a rate that it can't keep up with.
    """
    load = rate * costs.row_s
    if not 0 < load < 1:
        raise ValueError(f"{rate:g} rows a second are {load:.0%} of what one replica can do: there is no steady state")
    most = max(_LEAST_SPAN, _SPAN * costs.buckets[-1])
    choice = np.array([0, *(costs.best(n, load) for n in range(1, most + 1))])
    steady = _steady_state(costs, choice, rate)
    taken = np.minimum(choice, np.arange(most + 1))
    length_s = np.array([0.0, *(costs.cost(int(bucket)) for bucket in choice[1:])])
    # A decision that leaves nothing, and nobody comes meanwhile, is followed by idleness until the next row.
    left = np.arange(most + 1) - taken
    idle = float(np.sum(steady[1:] * np.where(left[1:] == 0, np.exp(-rate * length_s[1:]), 0.0)))
    busy_s = float(np.sum(steady * length_s))
    waits, weights = [np.array([length_s[1]])], [np.array([idle])]
    follow = _follower(costs, choice, rate)
    for n in np.flatnonzero(steady > _LEAST):
        found = _arriving_during(int(left[n]), float(length_s[n]), rate, follow)
        waits.append(found[0])
        weights.append(found[1] * steady[n] * rate * length_s[n])
    wait, weight = np.concatenate(waits), np.concatenate(weights)
    order = np.argsort(wait)
    wait, share = wait[order], np.cumsum(weight[order])
    share /= share[-1]
    return QueueWaiting(
        rate=rate,
        mean_s=float(np.sum(np.concatenate(waits) * np.concatenate(weights)) / np.sum(weight)),
        p50_s=float(wait[np.searchsorted(share, 0.50)]),
        p99_s=float(wait[np.searchsorted(share, 0.99)]),
        busy=busy_s / (busy_s + idle / rate),
        batch_rows=float(np.sum(steady * taken)),
    )


def _steady_state(costs: CostTable, choice: np.ndarray, rate: float) -> np.ndarray:
    """Return the probability of each number of waiting rows at a decision; that of none is 0."""
    most = len(choice) - 1
    coming = {bucket: _poisson(rate * costs.cost(int(bucket)), most) for bucket in set(choice[1:])}
    chain = np.zeros((most + 1, most + 1))
    for n in range(1, most + 1):
        left = n - min(int(choice[n]), n)
        chain[n, left:] = coming[choice[n]][: most + 1 - left]
        chain[n, most] += 1.0 - chain[n].sum()
    # From an empty queue the next decision is about one row.
    chain[:, 1] += chain[:, 0]
    chain[:, 0] = 0.0
    chain[0, 1] = 1.0
    # One equation of the balance follows from the others; in its place stands that probabilities add up to one.
    balance = chain.T - np.eye(most + 1)
    balance[0] = 1.0
    return np.clip(np.linalg.solve(balance, np.eye(most + 1)[0]), 0.0, None)


def _arriving_during(
    left: int, length_s: float, rate: float, follow: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return waits of a row that arrives during a batch which leaves ``left`` rows, and their probabilities."""
    waits, weights = [], []
    for moment in range(_N_MOMENTS):
        gone_s = length_s * (moment + 0.5) / _N_MOMENTS
        before = _poisson(rate * gone_s)
        counts = np.flatnonzero(before > _LEAST)
        position = np.repeat(left + counts + 1, _N_AFTER)
        n_waiting = position + np.tile(_quantiles(rate * (length_s - gone_s)), len(counts))
        waits.append(length_s - gone_s + follow(position, n_waiting))
        weights.append(np.repeat(before[counts], _N_AFTER) / (_N_MOMENTS * _N_AFTER))
    return np.concatenate(waits), np.concatenate(weights)


def _follower(costs: CostTable, choice: np.ndarray, rate: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return what says how long rows at their positions wait from a decision on, by how many wait then."""
    most = len(choice) - 1
    cost_s = np.zeros(costs.buckets[-1] + 1)
    for bucket, each_s in costs.by_bucket.items():
        cost_s[bucket] = each_s

    def follow(position: np.ndarray, n_waiting: np.ndarray) -> np.ndarray:
        waited_s = np.zeros(len(position))
        is_waiting = np.ones(len(position), bool)
        for _ in range(_MOST_BATCHES):
            bucket = choice[np.minimum(n_waiting, most)]
            waited_s += np.where(is_waiting, cost_s[bucket], 0.0)
            is_waiting &= position > bucket
            if not is_waiting.any():
                break
            position = position - bucket
            coming = np.rint(rate * cost_s[bucket]).astype(int)
            n_waiting = np.maximum(np.maximum(position, n_waiting - bucket + coming), 1)
        return waited_s

    return follow


def _poisson(mean: float, most: int | None = None) -> np.ndarray:
    """Return the probabilities of 0, 1, ... events; up to where they stop to matter, or to ``most``."""
    n = math.ceil(mean + 7 * math.sqrt(mean) + 7) if most is None else most
    if mean == 0:
        return np.array([1.0] + n * [0.0])
    logs = np.arange(n + 1) * math.log(mean) - mean - np.array([math.lgamma(k + 1) for k in range(n + 1)])
    found: np.ndarray = np.exp(logs)
    return found


def _quantiles(mean: float) -> list[int]:
    """Return how many events there are at equally likely levels."""
    share = np.cumsum(_poisson(mean))
    return [int(np.searchsorted(share, (level + 0.5) / _N_AFTER)) for level in range(_N_AFTER)]

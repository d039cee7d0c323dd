"""What each bucket costs, and which bucket to run for a given number of waiting rows.

With ``w`` rows waiting and nobody else to come, running bucket ``b`` makes all ``w`` rows wait ``cost(b)`` and leaves
``w - b``. The least total waiting is therefore

    f(0) = 0,    f(w) = min over buckets b of  cost(b) * w + f(w - min(b, w))

and the minimizing ``b`` is the decision for ``w``. It weighs padding up (``b > w``), batching down (``b < w``, the rest
goes next) and splitting against each other by what they cost, and it asks nothing of the costs: a bucket that is slower
than a larger one is simply never chosen. While rows keep arriving it is throughput that counts, the more so the more
of them come; then the rules of ``under_load`` hold, once they have been prepared.

The table grows as larger ``w`` are asked for, up to ``_TABLE_SPAN`` times the largest bucket. Beyond it the answer is
the bucket with the least cost per row: in a queue that long, throughput is what counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from server.batching.under_load import LoadRules

__all__ = ["TURN_S", "CostTable"]

#: What a batch costs beside its graph and beside what each of its requests takes: planning, staging, dividing the
#: results, code and data that come back into the processor's caches, and a graph that finds them cold. Found from
#: batches of several sizes at a full core: 0.4 ms for a 64-256-256-10 MLP, and 2.4 ms for a convolutional network that
#: leaves nothing of the server in the second-level cache, half of it in the graph's thread. A planner that thinks
#: little of it splits too finely: at 0.1 ms eight callers of that network ran in fours, and got 0.8 times what they got
#: in eights.
TURN_S = 700e-6

#: Where the table ends, in largest buckets. Measured on the cost curves of an MLP, an LSTM and three made-up
#: shapes, queues of up to 1,280 rows: total waiting is at most 0.75 % over the optimum with 8, 3.8 % with 4.
_TABLE_SPAN = 8


class CostTable:
    """Measured cost of one call of each bucket of one group.

    Units: ``costs`` maps a bucket (rows) to seconds.
    Errors: ValueError if there is no bucket, a bucket is under 1, or a cost is not a positive finite number.
    """

    __slots__ = (
        "_costs",
        "_densest_s",
        "_rules",
        "_table",
        "_table_rows",
        "buckets",
        "densest",
        "quickest_s",
        "row_s",
        "slowest_s",
    )

    def __init__(self, costs: Mapping[int, float]) -> None:
        if not costs:
            raise ValueError("a cost table needs at least one bucket")
        for bucket, cost_s in costs.items():
            if bucket < 1:
                raise ValueError(f"bucket {bucket} is under 1 row")
            if not (cost_s > 0 and math.isfinite(cost_s)):
                raise ValueError(f"the cost of bucket {bucket} is {cost_s!r} s: expected a positive number")
        self._costs = dict(sorted(costs.items()))
        #: Batch sizes that can be run, ascending.
        self.buckets = tuple(self._costs)
        #: Seconds for one call of the cheapest bucket: the least time in which any row can be answered.
        self.quickest_s = min(self._costs.values())
        #: Seconds for one call of the costliest bucket.
        self.slowest_s = max(self._costs.values())
        #: Seconds for each row when the bucket with the best throughput runs full.
        self.row_s, self.densest = min((cost_s / bucket, bucket) for bucket, cost_s in self._costs.items())
        self._densest_s = self._costs[self.densest]
        self._table_rows = _TABLE_SPAN * self.buckets[-1]
        self._table = _Table(self._costs)
        #: None until ``prepare`` was called.
        self._rules: LoadRules | None = None

    def prepare(self) -> CostTable:
        """Work out the rules for queues under load, which takes some 40 ms; return the table itself."""
        self._rules = LoadRules(self._costs)
        return self

    def cost(self, bucket: int) -> float:
        """Return the seconds of one call of ``bucket``. Errors: KeyError if it is not one of ``buckets``."""
        return self._costs[bucket]

    @property
    def by_bucket(self) -> Mapping[int, float]:
        """Seconds of one call, by bucket."""
        return self._costs

    def best(self, n_waiting: int, load: float = 0.0) -> int:
        """Return the bucket to run now when ``n_waiting`` (at least 1) rows of the group wait.

        ``load``: what arrives, as a share of the best throughput.
        """
        rules = self._rules
        if rules is not None:
            level = rules.level(load)
            if level is not None:
                return rules.bucket(level, n_waiting) if n_waiting <= rules.most_rows else self.densest
        return self._table.bucket_for(n_waiting) if n_waiting <= self._table_rows else self.densest

    def clear_s(self, n_waiting: int) -> float:
        """Return seconds in which ``n_waiting`` rows can all have run on one executor that does nothing else.

        A bound on the least time, at no more cost than a few multiplications: all in the quickest bucket, or all in
        the densest one, the last of them padded.
        """
        quickest_s, densest_s = n_waiting * self.quickest_s, n_waiting * self.row_s + self._densest_s
        return quickest_s if quickest_s < densest_s else densest_s  # noqa: FURB136 - min takes twice as long

    def best_within(self, n_waiting: int, budget_s: float) -> int | None:
        """Return the bucket with the least cost per row among those that take at most ``budget_s`` seconds.

        None if no bucket is that quick. Padding rows don't count as rows.
        """
        chosen = None
        chosen_row_s = math.inf
        for bucket, cost_s in self._costs.items():
            row_s = cost_s / min(bucket, n_waiting)
            if cost_s <= budget_s and row_s < chosen_row_s:
                chosen, chosen_row_s = bucket, row_s
        return chosen


class _Table:
    """Decisions for rows that nobody follows. Entry ``w`` of each list is about ``w`` waiting rows."""

    __slots__ = ("_bucket_for", "_costs", "_flow_s")

    def __init__(self, costs: Mapping[int, float]) -> None:
        self._costs = costs
        #: The bucket to run first, and the total waiting f(w).
        self._bucket_for = [0]
        self._flow_s = [0.0]

    def bucket_for(self, n_waiting: int) -> int:
        """Return the bucket to run first."""
        if n_waiting >= len(self._bucket_for):
            self._extend(n_waiting)
        return self._bucket_for[n_waiting]

    def _extend(self, last: int) -> None:
        """Fill the table up to entry ``last``. Equal waiting goes to the smaller bucket, which pads less."""
        costs = self._costs
        buckets, flows = self._bucket_for, self._flow_s
        for rows in range(len(buckets), last + 1):
            flow_s, bucket = min(
                (cost_s * rows + (flows[rows - bucket] if bucket < rows else 0.0), bucket)
                for bucket, cost_s in costs.items()
            )
            buckets.append(bucket)
            flows.append(flow_s)

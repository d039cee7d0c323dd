"""That no model starves: how long its rows may wait while others have the executor.

Every model has a share of the executor's time, and the planner passes over one that has had ``within_s`` more than
another that waits. So while a model waits, each other one is given at most that much more than it, and the batch with
which it gets there; and as much again, as it may have been that far behind before. With several lanes so many batches
run before what they took is known.
"""

from __future__ import annotations

from server.batching import Batch, Group, Share
from tests.fuzz.account import Account
from tests.fuzz.virtual_time import VirtualTime

__all__ = ["Hunger"]


class Hunger:
    """Since when each share's rows wait without any of them being taken, against what the others can have had."""

    def __init__(self, account: Account, time: VirtualTime, *, lanes: int, within_s: float) -> None:
        self._account = account
        self._time = time
        self._lanes = lanes
        self._within_s = within_s
        #: Seconds of the longest batch of each share so far, measured or predicted.
        self._longest_s: dict[Share, float] = {}
        self._since_s: dict[Share, float] = {}
        #: The longest wait there was, as a share of what is allowed.
        self.worst = 0.0

    def waits(self, group: Group, n_rows: int) -> None:
        """Note that rows were queued."""
        if group.share.n_waiting <= n_rows:
            self._since_s[group.share] = self._time.now_s

    def served(self, batch: Batch, cost_s: float) -> float:
        """Judge the start of a batch of ``cost_s``, and return that: has anybody waited too long meanwhile?"""
        share, now_s = batch.group.share, self._time.now_s
        longest_s = self._longest_s
        longest_s[share] = max(longest_s.get(share, 0.0), batch.predicted_s, 1.3 * cost_s)
        most_s = sum(2.0 * self._within_s + (2.0 + self._lanes) * longest for longest in longest_s.values())
        for hungry, since_s in list(self._since_s.items()):
            if hungry is share or not hungry.n_waiting:
                # What is left of it begins to wait anew.
                del self._since_s[hungry]
                if hungry.n_waiting:
                    self._since_s[hungry] = now_s
                continue
            waited_s = now_s - since_s
            self.worst = max(self.worst, waited_s / most_s)
            self._account.note(waited_s <= most_s, f"a model has waited {waited_s:.6f} s, {most_s:.6f} s are allowed")
        return cost_s

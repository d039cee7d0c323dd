"""Fairness between models: whose turn it is, by the execution time that each has had.

Theory of operation. Each model has a ``Share``, which counts the seconds of execution that its batches took. Of the
models whose rows wait, one that has had more than another by a small amount must let the other go first; so whatever
one model's callers send, another's rows wait for little more than that amount and the batch that runs. A model that
had nothing waiting can't save up: when its rows come, it starts from where the others are (start-time fair queueing:
Goyal, Vin and Cheng, 1996).
"""

from __future__ import annotations

__all__ = ["Share", "Shares"]


class Share:
    """The execution time that one model has had; its groups hold one share between them."""

    __slots__ = ("n_waiting", "used_s")

    def __init__(self) -> None:
        #: Seconds, counted from the start of the executor's time as ``Shares`` has it.
        self.used_s = 0.0
        #: Rows that wait in all of its groups; written by the batcher.
        self.n_waiting = 0


class Shares:
    """Keeps the shares of one executor comparable. Called by the batcher alone."""

    __slots__ = ("_now_s",)

    def __init__(self) -> None:
        #: The most that a share had used when a batch of it was started.
        self._now_s = 0.0

    def enter(self, share: Share) -> None:
        """Note that rows begin to wait where none did."""
        if share.used_s < self._now_s:
            share.used_s = self._now_s

    def charge(self, share: Share, cost_s: float) -> None:
        """Count a batch that is about to start, at its measured cost."""
        if share.used_s > self._now_s:
            self._now_s = share.used_s
        share.used_s += cost_s

"""Serving in virtual time: what the planner's choices cost, against other policies and the best that hindsight can do.

One executor, one queue, rows that differ in nothing but their arrival. No thread, no clock: a second of service takes
as long to simulate as its decisions take to make.
"""

from __future__ import annotations

from server.batching.simulation.arrivals import Arrivals, ClosedLoop, Rng, Trace, bursts, diurnal, poisson
from server.batching.simulation.capacity import QueueWaiting, ReplicaPlan, most_rate, plan_replicas, waiting_at
from server.batching.simulation.optimum import optimal_waiting_s
from server.batching.simulation.policies import (
    Choice,
    Policy,
    Queue,
    batch_down,
    minimize_cost_per_row,
    pad_up,
    planned,
    singles,
    window,
)
from server.batching.simulation.simulator import Outcome, simulate

__all__ = [
    "Arrivals",
    "Choice",
    "ClosedLoop",
    "Outcome",
    "Policy",
    "Queue",
    "QueueWaiting",
    "ReplicaPlan",
    "Rng",
    "Trace",
    "batch_down",
    "bursts",
    "diurnal",
    "minimize_cost_per_row",
    "most_rate",
    "optimal_waiting_s",
    "pad_up",
    "plan_replicas",
    "planned",
    "poisson",
    "simulate",
    "singles",
    "waiting_at",
    "window",
]

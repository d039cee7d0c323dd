"""The core: admission, queues, the planner and the batcher. Start reading at ``plan``.

Pure Python: no TensorFlow, no HTTP, no event loop, and no clock of its own.
"""

from __future__ import annotations

from server.batching.admission import QueueLimits
from server.batching.batcher import Batcher
from server.batching.costs import CostTable
from server.batching.drift import CostDrift
from server.batching.errors import (
    BatchingError,
    Cancelled,
    DeadlineExceeded,
    Draining,
    ExampleFailed,
    ExecutionFailed,
    ModelUnloaded,
    Overloaded,
    QueueFull,
    QueueTimeout,
    Refused,
    TooManyRows,
)
from server.batching.interfaces import Executor, Observer
from server.batching.isolate import Isolated, RowErrors, isolate, runs_of_slice
from server.batching.items import PRIORITY, Batch, Item, Part, Span
from server.batching.observing import Observers
from server.batching.plan import Dispatch, Idle, Policy, Reason, Waiting, WaitUntil, plan
from server.batching.queue import Group, Quota
from server.batching.returning import Returning
from server.batching.shares import Share

__all__ = [
    "PRIORITY",
    "Batch",
    "Batcher",
    "BatchingError",
    "Cancelled",
    "CostDrift",
    "CostTable",
    "DeadlineExceeded",
    "Dispatch",
    "Draining",
    "ExampleFailed",
    "ExecutionFailed",
    "Executor",
    "Group",
    "Idle",
    "Isolated",
    "Item",
    "ModelUnloaded",
    "Observer",
    "Observers",
    "Overloaded",
    "Part",
    "Policy",
    "QueueFull",
    "QueueLimits",
    "QueueTimeout",
    "Quota",
    "Reason",
    "Refused",
    "Returning",
    "RowErrors",
    "Share",
    "Span",
    "TooManyRows",
    "WaitUntil",
    "Waiting",
    "isolate",
    "plan",
    "runs_of_slice",
]

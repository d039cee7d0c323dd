"""A double of the event loop that engines post to."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


class PostBox:
    """Stands for the event loop: takes what the thread posts, and can be closed like one."""

    def __init__(self) -> None:
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.is_closed = False
        self.refused = threading.Event()

    def __call__(self, function: Callable[..., None], *arguments: Any) -> None:
        if self.is_closed:
            self.refused.set()
            raise RuntimeError("Event loop is closed")
        self.posted.put(lambda: function(*arguments))

    def run_one(self) -> None:
        self.posted.get(timeout=60)()

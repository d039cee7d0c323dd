"""In-batch shadow: a candidate version runs on a share of the live batches, after their callers were answered.

Theory of operation. When a live batch has been answered, every so many of them (``share``) leaves its rows and outputs
with its model's shadow. The candidate runs on the same rows, on a thread of its own with the lowest priority that the
system gives, and only starts while nothing waits and nothing runs; so a caller may at most share the cores with one
batch of it. What the callers have is the live version's, whatever the candidate does: if it raises, that is counted.
At most ``_MAX_PENDING`` batches are kept for it; further ones are dropped, and counted.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from server.batching import Batch, Group, Span
from server.comparison import Comparison
from server.engine import GroupRunner
from server.protocol import Column
from server.signature import ModelSignature

__all__ = ["Shadow", "ShadowRunner"]

_MAX_PENDING = 4
_LOWEST_PRIORITY = 19


@dataclass(slots=True, eq=False)
class Shadow:
    """A candidate, and what is known of it. ``groups`` maps (entry point, padded lengths) to its batches' group.

    ``share`` of the live batches, from 0 to 1, are taken. ``signatures`` are those of the entry points.
    """

    model: str
    version: int
    share: float
    groups: Mapping[tuple[str, tuple[int, ...]], tuple[Group, GroupRunner]]
    signatures: Mapping[str, ModelSignature]
    found: Comparison = field(default_factory=Comparison)
    #: Grows by ``share`` with each live batch; one that makes it 1 is taken.
    credit: float = 0.0
    pending: deque[_Work] = field(default_factory=deque)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"model": self.model, "version": self.version, "share": self.share, **self.found.to_json()}


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """A live batch that was answered."""

    shadow: Shadow
    entry: str
    lengths: tuple[int, ...]
    spans: Sequence[Span]
    n_rows: int
    outputs: Sequence[Column]
    took_s: float


class ShadowRunner:
    """Runs shadows on a thread of its own. All methods are called on the event loop's thread.

    ``post`` hands a function to that thread from another; ``is_idle`` says whether no live row waits or runs;
    ``on_compared`` is told the shadow, ``compared``, ``failed`` or ``dropped``, and rows in all and rows that differ.
    """

    def __init__(
        self,
        *,
        post: Callable[..., object],
        is_idle: Callable[[], bool],
        on_compared: Callable[[Shadow, str, int, int], None],
    ) -> None:
        self._post = post
        self._is_idle = is_idle
        self._on_compared = on_compared
        #: By model: one shadow at a time.
        self._shadows: dict[str, Shadow] = {}
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        #: The shadow whose work is with the thread, and who waits for it to end.
        self._running: Shadow | None = None
        self._on_stopped: dict[Shadow, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None

    @property
    def any(self) -> bool:
        """True if there is a shadow."""
        return bool(self._shadows)

    def of(self, model: str) -> Shadow | None:
        """Return the model's shadow, None if it has none."""
        return self._shadows.get(model)

    def start(self, shadow: Shadow) -> None:
        """Begin to take a share of the model's batches."""
        assert shadow.model not in self._shadows, "a model has one shadow at a time"
        self._shadows[shadow.model] = shadow
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="shadow", daemon=True)
            self._thread.start()

    def stop(self, shadow: Shadow, on_stopped: Callable[[], None]) -> None:
        """Take no more of the model's batches; call ``on_stopped`` when none of them runs."""
        del self._shadows[shadow.model]
        shadow.pending.clear()
        if self._running is shadow:
            self._on_stopped[shadow] = on_stopped
        else:
            on_stopped()

    def close(self) -> None:
        """Let the running batch end, then the thread."""
        if self._thread is not None:
            self._work.put(None)

    def finished(self, batch: Batch, spans: Sequence[Span], outputs: object, error: BaseException | None) -> None:
        """Note that a live batch was answered: ``spans`` as they were before that."""
        key: Any = batch.group.key
        shadow = self._shadows.get(key.model)
        if shadow is not None and error is None and key.version != shadow.version:
            shadow.credit += shadow.share
            if shadow.credit >= 1.0:
                shadow.credit -= 1.0
                self._take(shadow, batch, spans, outputs)
        self._pump()

    def _take(self, shadow: Shadow, batch: Batch, spans: Sequence[Span], outputs: Any) -> None:
        key: Any = batch.group.key
        if (key.entry, key.lengths) not in shadow.groups:
            return
        if len(shadow.pending) == _MAX_PENDING:
            shadow.found.n_dropped += 1
            self._on_compared(shadow, "dropped", 0, 0)
            return
        took_s = batch.finished_s - batch.dispatched_s
        shadow.pending.append(_Work(shadow, key.entry, key.lengths, spans, batch.n_rows, outputs, took_s))

    def _pump(self) -> None:
        """Give the thread its next batch, if it and the executor have nothing to do."""
        if self._running is not None or not self._shadows or not self._is_idle():
            return
        waiting = next((shadow for shadow in self._shadows.values() if shadow.pending), None)
        if waiting is not None:
            self._running = waiting
            # Whose turn comes last now.
            self._shadows[waiting.model] = self._shadows.pop(waiting.model)
            self._work.put(waiting.pending.popleft())

    def _loop(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
        while (work := self._work.get()) is not None:
            try:
                started_s = time.perf_counter()
                outputs = _run(work)
                ratio = (time.perf_counter() - started_s) / max(work.took_s, 1e-9)
                rows = [
                    None if item.payload.lengths is None else item.payload.lengths[item.first + row]
                    for item, row in _rows(work)
                ]
                found = work.shadow.found
                n_differing = found.compare(work.shadow.signatures[work.entry], work.entry, work.outputs, outputs, rows)
                ended = (work.shadow, work.n_rows, n_differing, ratio, "")
            except Exception as error:  # noqa: BLE001 - whatever the candidate does, it harms nobody
                ended = (work.shadow, work.n_rows, 0, 0.0, f"{type(error).__name__}: {error}"[:500])
            del work
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._post(self._ended, *ended)

    def _ended(self, shadow: Shadow, n_rows: int, n_differing: int, ratio: float, error: str) -> None:
        self._running = None
        if error:
            shadow.found.n_failed += 1
            shadow.found.last_error = error
            self._on_compared(shadow, "failed", n_rows, 0)
        else:
            shadow.found.add(n_rows, n_differing, ratio=ratio)
            self._on_compared(shadow, "compared", n_rows, n_differing)
        on_stopped = self._on_stopped.pop(shadow, None)
        if on_stopped is not None:
            on_stopped()
        self._pump()


def _rows(work: _Work) -> list[tuple[Any, int]]:
    return [(item, row) for item, start, stop in work.spans for row in range(start, stop)]


def _run(work: _Work) -> list[Column]:
    """Run the candidate on a batch's rows, in as many batches of its own as it takes."""
    group, runner = work.shadow.groups[work.entry, work.lengths]
    sizes = sorted(runner.costs_s)
    rows = _rows(work)
    parts: list[list[Column]] = []
    for start in range(0, len(rows), sizes[-1]):
        spans: list[Span] = [(item, row, row + 1) for item, row in rows[start : start + sizes[-1]]]
        bucket = next(size for size in sizes if len(spans) <= size)
        batch = Batch(0, group, bucket, spans, n_rows=len(spans), reason="shadow", dispatched_s=0.0, predicted_s=0.0)
        parts.append([column[: len(spans)] for column in runner.run(batch)])
    return [[row for part in parts for row in part[index]] for index in range(len(parts[0]))]

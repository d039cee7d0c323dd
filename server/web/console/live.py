"""One snapshot a second for all who watch, and nothing at all while nobody does.

1. The first viewer starts the clock, and the last one who leaves stops it.
2. A second's snapshot is made once. A viewer who is slow misses snapshots; none is kept for him.
3. Whoever comes is told at once what there is, and the last minute as far as somebody saw it.
4. A stream ends when rights change, as its viewer's may have; he comes again. It ends when the server stops
   (``server.web.endless``), and with a viewer who leaves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from server.metrics import EntryKey, Metrics
from server.rights import Grant
from server.web.console.inventory import Inventory
from server.web.console.snapshot import Reading, Snapshot
from server.web.errors import ViewersFull
from server.web.interfaces import Batches, Catalog, WaitingRows

__all__ = ["MOST_VIEWERS", "Live"]

_log = logging.getLogger("rowwise.console")

MOST_VIEWERS = 32
_EVERY_S = 1.0
#: Snapshots that newcomers are shown.
_KEPT = 60
#: Requests whose latencies a snapshot looks at, the last ones: sorting so many takes a third of a millisecond.
_MOST_LATENCIES = 4_096


class Live:
    """What is going on, as server-sent events. Everything is called on the event loop's thread."""

    def __init__(
        self,
        catalog: Catalog,
        metrics: Metrics,
        batches: Batches,
        waiting_rows: WaitingRows,
        *,
        most_viewers: int = MOST_VIEWERS,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._metrics = metrics
        self._batches = batches
        self._waiting_rows = waiting_rows
        self._most_viewers = most_viewers
        self._clock = clock
        self._pause = pause
        self._inventory = Inventory(catalog)
        self._recent: deque[Snapshot] = deque(maxlen=_KEPT)
        #: Set and made anew at each snapshot, and when all streams are to end.
        self._news = asyncio.Event()
        #: How often all streams were ended.
        self._n_ends = 0
        self._ticking: asyncio.Task[None] | None = None
        #: Streams that run.
        self.n_viewers = 0

    def check_room(self) -> None:
        """Errors: ViewersFull."""
        if self.n_viewers >= self._most_viewers:
            raise ViewersFull(self._most_viewers)

    def end(self) -> None:
        """End every stream: what its viewer may see can have changed."""
        self._n_ends += 1
        self._tell()

    async def follow(self, grant: Grant) -> AsyncIterator[bytes]:
        """Yield the events of one stream, until it ends."""
        began = self._n_ends
        self.n_viewers += 1
        try:
            if self._ticking is None:
                self._ticking = asyncio.create_task(self._tick())
            self._inventory.look()
            revision = self._inventory.revision
            yield _event(b"models", self._inventory.text(grant))
            known = [text for snapshot in self._recent if (text := snapshot.known_text(grant)) is not None]
            yield b"".join(_event(b"snapshot", text) for text in known)
            while True:
                await self._news.wait()
                if self._n_ends != began:
                    yield _event(b"end", b"{}")
                    return
                if self._inventory.revision != revision:
                    revision = self._inventory.revision
                    yield _event(b"models", self._inventory.text(grant))
                yield _event(b"snapshot", self._recent[-1].text(grant))
        finally:
            self.n_viewers -= 1

    async def _tick(self) -> None:
        """Make snapshots for as long as somebody watches."""
        try:
            self._batches.keep_waits(keeps=True)
            before = self._read()
            while True:
                await self._pause(_EVERY_S)
                if not self.n_viewers:
                    return
                before = self._step(before)
        except Exception:  # noqa: BLE001 - a bug of ours must not leave viewers waiting for ever
            _log.exception("the console's snapshot failed; its streams end")
            self.end()
        finally:
            self._batches.keep_waits(keeps=False)
            self._ticking = None

    def _step(self, before: Reading) -> Reading:
        after = self._read()
        waiting: dict[EntryKey, int] = {key[:3]: key[3] for key in self._waiting_rows()}
        latencies_s = self._batches.latencies_s(since_s=before.at_s, most=_MOST_LATENCIES)
        if self._recent:
            self._recent[-1].settle()
        self._recent.append(Snapshot(before, after, waiting=waiting, latencies_s=latencies_s))
        self._inventory.look()
        self._tell()
        return after

    def _read(self) -> Reading:
        return Reading(self._clock(), self._metrics.totals(), self._metrics.requests.sums())

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _event(name: bytes, text: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, text)

"""Where models live while they serve: the batcher, the engines' threads, and the event loop between them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from server.after_ready import AfterReady
from server.artifact import PREDICT
from server.batching import (
    Batch,
    Batcher,
    CostDrift,
    CostTable,
    Group,
    Observer,
    Policy,
    QueueLimits,
    Quota,
    Returning,
    Share,
)
from server.batching.costs import TURN_S
from server.derivatives import ServedDerivative
from server.engine import EnginePool, GroupRunner, LoadedModel
from server.engine.devices import devices_for, seen_devices
from server.interpreter_turns import standing_back
from server.serving import ServedModel
from server.shadow import Shadow, ShadowRunner
from server.statistics import Statistics
from server.tensorflow_notices import load_tensorflow, notices_held

__all__ = ["GroupKey", "Host", "Hosted"]

#: A copy for each engine, and what each group's batches cost.
_Loaded = tuple[tuple[LoadedModel, ...], dict[tuple[str, tuple[int, ...]], CostTable]]

#: Seconds for which loading stands back after a batch has run.
_LATELY_S = 0.05
#: A timer that is this much early is left as it is: the loop's own resolution.
_TIMER_SLACK_S = 0.001


@dataclass(frozen=True, slots=True)
class GroupKey:
    """What rows of one batch have in common."""

    model: str
    version: int
    entry: str
    lengths: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Hosted:
    """A loaded version and the handle that requests use."""

    model: ServedModel
    #: One for each engine.
    loaded: tuple[LoadedModel, ...]
    groups: tuple[Group, ...]
    #: Who answers each of its entry points, the prediction among them.
    handles: tuple[ServedModel, ...] = ()


class Host:
    """Runs loaded models on engine threads, driven by one event loop.

    ``engines`` is how many, or "auto" for one on each accelerator. ``invariant``: all models are served in invariant
    mode, not only those that ask for it. ``statistics`` are those that ``observer`` keeps. ``returning_s``: how long a
    batch waits for callers who were just answered. ``start`` needs a running loop. Loading and unloading happen on a
    thread of their own, one at a time.
    """

    def __init__(
        self,
        *,
        limits: QueueLimits,
        observer: Observer | None = None,
        engines: int | Literal["auto"] = 1,
        invariant: bool = False,
        after_ready: AfterReady | None = None,
        on_compared: Callable[[Shadow, str, int, int], None] = lambda shadow, result, n_rows, n_differing: None,
        statistics: Statistics | None = None,
        returning_s: float = 0.0,
    ) -> None:
        self._statistics = Statistics() if statistics is None else statistics
        self._on_compared = on_compared
        self.after_ready = AfterReady(None) if after_ready is None else after_ready
        self._limits = limits
        self._policy = Policy(returning_s=returning_s)
        self._engines = engines
        self._invariant = invariant
        self._observer = observer
        self._loading = ThreadPoolExecutor(1, thread_name_prefix="rowwise-load")
        self._timer: asyncio.TimerHandle | None = None
        #: When the last batch ended, by the loop's clock.
        self._ran_s = -math.inf
        #: By model: all of its versions have one share of the executor's time.
        self._shares: dict[str, Share] = {}
        #: Versions whose groups are attached to the engine.
        self._hosted: list[Hosted] = []

    def start(self) -> None:
        """Connect batcher, engine thread and loop."""
        loop = self._loop = asyncio.get_running_loop()
        # The loop's clock is monotonic; deadlines and timers must agree on one.
        self._clock = time.monotonic
        self._engine = EnginePool(post=loop.call_soon_threadsafe)
        self.batcher = Batcher(
            clock=self._clock,
            executor=self._engine,
            defer=self._defer,
            limits=self._limits,
            observer=self._observer,
            policy=self._policy,
        )
        self._engine.start_threads(self._finished, backlog_s=lambda: self.batcher.backlog_s)
        self.shadows = ShadowRunner(
            post=loop.call_soon_threadsafe,
            is_idle=lambda: not self.batcher.n_waiting and not self.batcher.n_running,
            on_compared=self._on_compared,
        )

    @property
    def n_rows(self) -> int:
        """Rows of all models that were admitted and are not answered."""
        return self.batcher.n_rows

    def waiting_rows(self) -> Iterator[tuple[str, int, str, int]]:
        """Yield model, version, entry point and how many of its rows wait, for each version that is loaded."""
        for hosted in self._hosted:
            waiting = dict.fromkeys(hosted.loaded[0].manifest.entries, 0)
            for group in hosted.groups:
                apart = 0 if group.quarantine is None else group.quarantine.group.n_rows
                waiting[group.key.entry] += group.n_rows + apart  # type: ignore[attr-defined]
            for entry, n_rows in waiting.items():
                yield hosted.model.name, hosted.model.version, entry, n_rows

    def queue_limits(self) -> Iterator[tuple[str, int, int]]:
        """Yield model, version and how many of its rows may wait, for each version that is loaded."""
        for hosted in self._hosted:
            quota = hosted.groups[0].quota
            assert quota is not None, "each was loaded with one"
            yield hosted.model.name, hosted.model.version, quota.max_rows

    def queue_bytes(self) -> tuple[int, float]:
        """Return how many bytes of rows wait for all models, and how many may."""
        return self.batcher.n_bytes_waiting, self._limits.max_bytes_in_all

    def devices(self) -> list[str] | None:
        """Return what TensorFlow computes on; None as long as nothing was loaded, since asking would load it."""
        return seen_devices() if self._hosted else None

    def prepare(self) -> None:
        """Import TensorFlow in the background: a build has begun, and its result will be loaded."""
        self._loading.submit(load_tensorflow)

    async def load(
        self,
        name: str,
        version: int,
        artifact: Path,
        *,
        queue_rows: int,
        default_timeout_s: float,
        batch_limit: int | None,
    ) -> Hosted:
        """Load and warm an artifact and make it ready to answer. Errors: ArtifactRefused; LoadFailed."""
        copies, costs = await self._loop.run_in_executor(self._loading, partial(self._load, artifact, batch_limit))
        self._engine.grow(len(copies))
        loaded = copies[0]
        quota = Quota(queue_rows, self._limits.max_bytes)
        share = self._shares.setdefault(name, Share())
        groups: dict[str, dict[tuple[int, ...], Group]] = {}
        returning = Returning()
        for entry, lengths in loaded.groups:
            group = Group(
                GroupKey(name, version, entry, lengths),
                costs[entry, lengths],
                label=f"model {name!r} version {version}" + ("" if entry == PREDICT else f" ({entry})"),
                quota=quota,
                share=share,
                returning=returning,
            )
            group.drift = CostDrift(group.costs.by_bucket, partial(self._costs_changed, group))
            self._engine.attach(group, [copy.groups[entry, lengths] for copy in copies])
            groups.setdefault(entry, {})[lengths] = group
        handles = {
            entry: ServedModel(
                name,
                version,
                loaded.manifest.signature_of(entry),
                by_lengths,
                batcher=self.batcher,
                clock=self._clock,
                default_timeout_s=default_timeout_s,
                entry=entry,
                statistics=self._statistics.open(name, version, entry),
            )
            for entry, by_lengths in groups.items()
        }
        model = handles[PREDICT]
        model.derivatives = tuple(
            ServedDerivative(described=described, model=handles[entry])
            for entry, described in loaded.manifest.derivatives.items()
        )
        hosted = Hosted(
            model,
            copies,
            tuple(group for by_lengths in groups.values() for group in by_lengths.values()),
            tuple(handles.values()),
        )
        self._hosted.append(hosted)
        return hosted

    async def unload(self, hosted: Hosted) -> None:
        """Finish what was admitted, then give the memory back."""
        idle = [self._loop.create_future() for _ in hosted.groups]
        for group, future in zip(hosted.groups, idle, strict=True):
            self.batcher.close_group(group, on_idle=partial(future.set_result, None))
        await asyncio.gather(*idle)
        for group in hosted.groups:
            self._engine.detach(group)
        self._hosted.remove(hosted)
        if all(other.model.name != hosted.model.name for other in self._hosted):
            del self._shares[hosted.model.name]
        for handle in hosted.handles:
            self._statistics.close(handle.name, handle.version, handle.entry, handle.statistics)
        for loaded in hosted.loaded:
            await self._loop.run_in_executor(self._loading, self._close, loaded)

    async def drain(self) -> None:
        """Admit nothing more and return when all that was admitted is answered."""
        drained = self._loop.create_future()
        self.batcher.drain(lambda: drained.set_result(None))
        await drained

    async def aclose(self) -> None:
        """Stop the threads. What is loaded goes with the process."""
        if self._timer is not None:
            self._timer.cancel()
        self.shadows.close()
        await self._loop.run_in_executor(None, self._engine.stop)
        self._loading.shutdown(wait=False, cancel_futures=True)

    def shadow(self, hosted: Hosted, share: float) -> Shadow:
        """Let a loaded version that does not serve run on a share of its model's live batches."""
        loaded = hosted.loaded[0]
        groups: dict[tuple[str, tuple[int, ...]], tuple[Group, GroupRunner]] = {}
        for group in hosted.groups:
            key: Any = group.key
            groups[key.entry, key.lengths] = group, loaded.groups[key.entry, key.lengths]
        signatures = {entry: loaded.manifest.signature_of(entry) for entry in loaded.manifest.entries}
        shadow = Shadow(hosted.model.name, hosted.model.version, share, groups, signatures)
        self.shadows.start(shadow)
        return shadow

    def _load(self, artifact: Path, batch_limit: int | None) -> _Loaded:
        with self.after_ready.loading(), standing_back(self._has_callers):
            return _load(artifact, self._engines, batch_limit=batch_limit, invariant=self._invariant)

    def _close(self, loaded: LoadedModel) -> None:
        with standing_back(self._has_callers):
            loaded.close()

    def _has_callers(self) -> bool:
        """Return whether a batch has run lately."""
        return self._clock() - self._ran_s < _LATELY_S

    def _finished(self, batch: Batch, outputs: object, error: BaseException | None) -> None:
        self._ran_s = self._clock()
        if not self.shadows.any:
            self.batcher.finished(batch, outputs, error)
        else:
            spans = list(batch.spans)
            self.batcher.finished(batch, outputs, error)
            self.shadows.finished(batch, spans, outputs, error)
        self._set_timer()

    def _costs_changed(self, group: Group, costs_s: Mapping[int, float]) -> None:
        """Work out the rules for the new costs beside the event loop, and plan with them once they are there."""

        def work_out() -> None:
            costs = CostTable(costs_s).prepare()
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nothing is planned any more
                self._loop.call_soon_threadsafe(self.batcher.recost, group, costs)

        with contextlib.suppress(RuntimeError):  # the same, seen earlier
            self._loading.submit(work_out)

    def _defer(self, function: object) -> None:
        self._loop.call_soon(self._end_of_tick, function)

    def _end_of_tick(self, poll: object) -> None:
        poll()  # type: ignore[operator]
        self._set_timer()

    def _set_timer(self) -> None:
        wakeup_s = self.batcher.next_wakeup_s()
        if wakeup_s is not None and (self._timer is None or wakeup_s < self._timer.when() - _TIMER_SLACK_S):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(wakeup_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self.batcher.expire()
        wakeup_s = self.batcher.next_wakeup_s()
        if wakeup_s is not None:
            self._timer = self._loop.call_at(max(wakeup_s, self._clock() + _TIMER_SLACK_S), self._expire)


def _load(artifact: Path, engines: int | Literal["auto"], *, batch_limit: int | None, invariant: bool) -> _Loaded:
    """Load a copy for each engine. Variables are held by each: engines share nothing that would have to be locked."""
    load_tensorflow()
    copies: list[LoadedModel] = []
    try:
        with notices_held():
            copies.extend(
                LoadedModel.load(artifact, batch_limit=batch_limit, invariant=invariant, device=device)
                for device in devices_for(engines)
            )
    except BaseException:
        for copy in copies:
            copy.close()
        raise
    return tuple(copies), {
        group: CostTable({rows: cost_s + TURN_S for rows, cost_s in runner.costs_s.items()}).prepare()
        for group, runner in copies[0].groups.items()
    }

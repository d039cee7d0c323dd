"""What a supervisor decides, as values: events in, instructions out. No process, no signal, no clock is in here.

Rules:

1. What ends is started again: at once if it had run for a while, else after a pause that doubles up to a bound.
   A worker's socket is closed until its successor listens, so that the kernel gives its share of the callers to the
   others; the last one stays open, and callers wait in it.
2. An engine that refuses to start with a reason, before it has ever run, ends the server: trying again can't help.
3. To stop, the doors are closed and the workers are told; they answer what they have. When the last one has gone the
   engine is told; when it has gone the server ends.
4. Who is told a second time to stop, or takes much longer than the grace period, is killed.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["ENGINE", "REFUSED", "CloseDoor", "CloseDoors", "End", "Instruction", "Signal", "Start", "Supervision"]

ENGINE = "engine"

#: Exit code of an engine that can't start and has said why.
REFUSED = 3

#: A child that has run for so long was well when it started.
_WELL_AFTER_S = 10.0
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 10.0
#: Beyond the grace period: children keep to it themselves, and need a moment to leave.
_LEAVE_S = 5.0


@dataclass(frozen=True, slots=True)
class Start:
    """Start a child."""

    name: str


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to a child that runs."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class CloseDoors:
    """Close the listening sockets: whoever comes now is refused, as nobody would answer."""


@dataclass(frozen=True, slots=True)
class CloseDoor:
    """Close the listening socket of one worker, which takes no connections now; ``Start`` makes a new one."""

    name: str


@dataclass(frozen=True, slots=True)
class End:
    """Leave with this exit code; no child runs."""

    code: int


Instruction = Start | Signal | CloseDoor | CloseDoors | End


@dataclass(slots=True)
class _Child:
    #: When it was last started, or is to be: by the clock of whoever calls.
    start_s: float
    is_running: bool = False
    has_run_well: bool = False
    pause_s: float = 0.0
    was_killed: bool = False


@dataclass(slots=True)
class Supervision:
    """The children by name, the engine first, and how far stopping is. Times are seconds of one monotonic clock."""

    workers: Sequence[str]
    grace_s: float
    #: Every child's name to its state.
    _children: dict[str, _Child] = field(default_factory=dict)
    #: When the children that were told to stop are killed; None while the server runs.
    _kill_s: float | None = None
    _exit_code: int = 0

    @property
    def is_stopping(self) -> bool:
        """True from the first ``stop`` on."""
        return self._kill_s is not None

    def start(self, now_s: float) -> list[Instruction]:
        """Begin."""
        self._children = {name: _Child(now_s) for name in (ENGINE, *self.workers)}
        return self.due(now_s)

    def exited(self, name: str, code: int, now_s: float) -> list[Instruction]:
        """A child has ended."""
        child = self._children[name]
        child.is_running = False
        lived_s = now_s - child.start_s
        child.has_run_well |= lived_s >= _WELL_AFTER_S
        if self.is_stopping:
            return self._stop_next(now_s)
        if name == ENGINE and code == REFUSED and not child.has_run_well:
            self._exit_code = 1
            return self.stop(now_s)
        if lived_s >= _WELL_AFTER_S:
            child.pause_s = 0.0
        pause_s, child.pause_s = child.pause_s, min(_LONGEST_PAUSE_S, 2 * child.pause_s or _FIRST_PAUSE_S)
        child.start_s = now_s + pause_s
        # Connections would be refused where no socket is open.
        others_listen = name != ENGINE and self._running(self.workers)
        return [*([CloseDoor(name)] if others_listen else []), *self.due(now_s)]

    def stop(self, now_s: float) -> list[Instruction]:
        """Stop gently; the second time, at once."""
        if self.is_stopping:
            return self._kill()
        self._kill_s = now_s + self.grace_s + _LEAVE_S
        workers = self._running(self.workers)
        if workers:
            return [CloseDoors(), *(Signal(name, signal.SIGTERM) for name in workers)]
        return [CloseDoors(), *self._stop_next(now_s)]

    def hang_up(self) -> list[Instruction]:
        """Pass on that settings are to be read again."""
        return [Signal(name, signal.SIGHUP) for name in self._running(self._children)]

    def due(self, now_s: float) -> list[Instruction]:
        """Do what time has come for."""
        if self._kill_s is not None:
            return self._kill() if now_s >= self._kill_s else []
        starting = [name for name, child in self._children.items() if not child.is_running and child.start_s <= now_s]
        for name in starting:
            child = self._children[name]
            child.is_running, child.start_s = True, now_s
        return [Start(name) for name in starting]

    def next_s(self) -> float | None:
        """Return when ``due`` is to be called; None: not before something happens."""
        if self._kill_s is not None:
            return None if all(child.was_killed or not child.is_running for child in self._all()) else self._kill_s
        return min((child.start_s for child in self._all() if not child.is_running), default=None)

    def _stop_next(self, now_s: float) -> list[Instruction]:
        if self._running(self.workers):
            return []
        if self._children[ENGINE].is_running:
            # Nobody waits for it any more: it only needs its moment to leave.
            self._kill_s = max(self._kill_s or 0.0, now_s + _LEAVE_S)
            return [Signal(ENGINE, signal.SIGTERM)]
        return [End(self._exit_code)]

    def _kill(self) -> list[Instruction]:
        names = [name for name in self._running(self._children) if not self._children[name].was_killed]
        for name in names:
            self._children[name].was_killed = True
        return [Signal(name, signal.SIGKILL) for name in names]

    def _running(self, names: Sequence[str] | dict[str, _Child]) -> list[str]:
        return [name for name in names if self._children[name].is_running]

    def _all(self) -> list[_Child]:
        return list(self._children.values())

"""What runs came to, summed over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.program import Program, draw

__all__ = ["Tally", "run_seed", "runner", "sentence"]


@dataclass
class Tally:
    """What some runs came to."""

    n_runs: int = 0
    n_moves: int = 0
    n_rows_right: int = 0
    hunger: float = 0.0
    ends: Counter[str] = field(default_factory=Counter)
    #: Seed and sentence of each run that broke a promise.
    broken: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.n_runs += other.n_runs
        self.n_moves += other.n_moves
        self.n_rows_right += other.n_rows_right
        self.hunger = max(self.hunger, other.hunger)
        self.ends.update(other.ends)
        self.broken += other.broken


def run_seed(level: str, seed: int, n_moves: int) -> Tally:
    """Carry out the program of one seed. ``level``: core or engine."""
    tally = Tally(n_runs=1, n_moves=n_moves)
    try:
        state = runner(level)(draw(seed, n_moves))
    except Exception as error:  # noqa: BLE001 - whatever it is, it should not be
        tally.broken.append((seed, sentence(error)))
    else:
        tally.n_rows_right = state.account.n_rows_right
        tally.ends = Counter(state.account.ends)
        tally.hunger = state.hunger.worst
    return tally


def runner(level: str) -> Callable[[Program], Any]:
    """Return what carries out a program: on the core, or through the engine's staging, which loads TensorFlow."""
    if level == "engine":
        from tests.fuzz.engine_run import run as run_engine

        return run_engine
    from tests.fuzz.core_run import run as run_core

    return run_core


def sentence(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {error}"

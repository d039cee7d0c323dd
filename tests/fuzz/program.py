"""What a run does, as data: drawn from a seed, printed, replayed, and made smaller.

A move names nothing that exists ("the third request that waits"), but numbers that are taken modulo what is there: any
part of a program is a program, and the same one always does the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

__all__ = ["Move", "Program", "Setting", "draw"]

#: A kind and its arguments.
Move = tuple[Any, ...]

COST_CURVES: tuple[dict[int, float], ...] = (
    {1: 1.0, 2: 1.2, 4: 1.6, 8: 2.4},
    {1: 0.5},
    {4: 1.0, 8: 1.1},
    {1: 1.0, 16: 1.05},
    {1: 0.2, 2: 0.9, 4: 0.5, 32: 3.0},
    {3: 1.0, 5: 2.0, 7: 2.2},
)
#: Seconds of a unit of cost: models of 30 us, of 1 ms and of 1 s.
SCALES_S = (3e-5, 1e-3, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What stays as it is during a run.

    ``curves`` are those of the models' shapes, a tuple for each model. ``inline_s``: batches of at most this cost run
    inside ``start``. ``late_s``: how late timers ring.
    """

    lanes: int
    scale_s: float
    curves: tuple[tuple[int, ...], ...]
    max_rows: int
    inline_s: float
    late_s: float
    drain_at: int
    noise_seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A seed's run."""

    seed: int
    setting: Setting
    moves: tuple[Move, ...]


def draw(seed: int, n_moves: int) -> Program:
    """Return the program of a seed: the same for the same arguments, on every machine."""
    rng = random.Random(seed)
    scale_s = rng.choice(SCALES_S)
    lanes = rng.choice((1, 1, 1, 2, 3))
    setting = Setting(
        lanes=lanes,
        scale_s=scale_s,
        curves=tuple(
            tuple(rng.randrange(len(COST_CURVES)) for _ in range(rng.choice((1, 1, 2, 3))))
            for _ in range(rng.randint(1, 4))
        ),
        max_rows=rng.choice((4, 40, 40, 200)),
        inline_s=rng.choice((0.0, 0.0, scale_s)) if lanes == 1 else 0.0,
        late_s=rng.choice((0.0, 0.0, 2.0 * scale_s)),
        drain_at=rng.randrange(n_moves) if rng.random() < 0.1 else n_moves,
        noise_seed=rng.randrange(1 << 30),
    )
    return Program(seed=seed, setting=setting, moves=tuple(_moves(rng, scale_s, n_moves)))


def _moves(rng: random.Random, scale_s: float, n_moves: int) -> list[Move]:
    # Each run has habits of its own: loads from light to hopeless, few or many faults, cancels, switches.
    step_s = scale_s * rng.choice((0.02, 0.1, 0.3, 1.0, 4.0))
    weights = {
        "ask": 10.0,
        "pass": rng.choice((2.0, 5.0, 10.0)),
        "tick": 2.0,
        "leave": rng.choice((0.0, 1.0, 5.0)),
        "fault": rng.choice((0.0, 0.2, 1.0)),
        "switch": rng.choice((0.0, 0.1, 0.5)),
        "unload": rng.choice((0.0, 0.0, 0.1)),
        "pace": rng.choice((0.0, 0.3)),
        "look": 0.5,
    }
    bad = rng.choice((0.0, 0.02, 0.2, 0.7))
    sizes = rng.choice(((1, 1), (1, 1), (1, 4), (1, 60)))
    hurry = rng.choice((0.0, 0.3, 1.0))
    chatty = rng.choice((0.0, 0.0, 0.3))
    kinds = rng.choices(list(weights), list(weights.values()), k=n_moves)
    moves: list[Move] = []
    for kind in kinds:
        number = rng.randrange(1 << 16)
        if kind == "ask":
            n_rows = rng.randint(*sizes)
            allowed_s = rng.uniform(-0.2, 12.0) * scale_s if rng.random() < hurry else None
            poison = tuple(row for row in range(n_rows) if rng.random() < bad) if rng.random() < 0.5 else ()
            then = rng.choice(("ask", "leave", "raise")) if rng.random() < chatty else ""
            priority = rng.choice((5, 5, 5, 5, 1, 7))
            moves.append((kind, number, n_rows, allowed_s, priority, poison, then))
        elif kind == "pass":
            moves.append((kind, rng.expovariate(1.0) * step_s))
        elif kind == "fault":
            moves.append((kind, rng.choice(("batch", "batch", "start", "server", "exit"))))
        elif kind == "unload":
            moves.append((kind, number, rng.random() < 0.5))
        elif kind == "pace":
            moves.append((kind, number, rng.choice((0.5, 1.0, 1.0, 2.0, 6.0))))
        elif kind in ("leave", "switch"):
            moves.append((kind, number))
        else:
            moves.append((kind,))
    return moves

"""Making a failing program smaller: fewer moves that still break a promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.fuzz.program import Move, Program

__all__ = ["shrink"]


def shrink(program: Program, breaks: Callable[[Program], bool], *, most_runs: int = 400) -> Program:
    """Return a program that breaks a promise and whose moves are some of ``program``'s.

    Pieces are left out, halves first, single moves last, as long as what is left still fails.
    """
    moves = program.moves
    n_pieces, n_runs = 2, 0
    while len(moves) > 1 and n_runs < most_runs:
        size = -(-len(moves) // n_pieces)
        for first in range(0, len(moves), size):
            rest = moves[:first] + moves[first + size :]
            n_runs += 1
            if breaks(_with(program, rest)):
                moves, n_pieces = rest, max(2, n_pieces - 1)
                break
            if n_runs >= most_runs:
                break
        else:
            if size == 1:
                break
            n_pieces = min(len(moves), 2 * n_pieces)
    return _with(program, moves)


def _with(program: Program, moves: tuple[Move, ...]) -> Program:
    return replace(program, moves=moves)

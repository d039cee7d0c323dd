"""Finding the rows on which a batch failed, so that the others get the answer they would get alone.

Theory of operation. A batch that raised holds at least one bad row. Halves are tried: one that works is answered, one
that fails holds the bad row, and what has not been tried is put aside. When a single row is left it is the bad one,
and the last failure was about it: all that failed with it have worked. Then what was put aside is run as a whole;
if that fails too, the search begins again in it.

For ``k`` bad rows of ``n`` that is at most ``k * (ceil(log2(n)) + 1)`` further runs. A batch of one row needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from server.batching.errors import ExampleFailed

__all__ = ["Isolated", "RowErrors", "isolate"]

Outputs = TypeVar("Outputs")


class RowErrors(Exception):
    """Some rows of a batch failed, the others have their results. ``errors`` maps rows of the batch to errors."""

    def __init__(self, errors: Mapping[int, ExampleFailed]) -> None:
        super().__init__(f"{len(errors)} rows failed")
        self.errors = errors


class Isolated(Generic[Outputs]):
    """Where each row's result is: ``runs`` are (rows, outputs), row ``rows[i]`` at position i of its outputs."""

    def __init__(self) -> None:
        self.runs: list[tuple[Sequence[int], Outputs]] = []
        self.errors: dict[int, ExampleFailed] = {}


def isolate(rows: Sequence[int], error: ExampleFailed, run: Callable[[Sequence[int]], Outputs]) -> Isolated[Outputs]:
    """Run the rows of a batch that failed with ``error`` until only the bad ones have none.

    ``run`` executes some of the rows, and raises ExampleFailed if one of them is bad. Errors: what else it raises.
    """
    found: Isolated[Outputs] = Isolated()
    suspects: Sequence[int] = rows
    while suspects:
        untried: list[int] = []
        while len(suspects) > 1:
            half, rest = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
            try:
                outputs = run(half)
            except ExampleFailed as failure:
                untried = [*rest, *untried]
                suspects, error = half, failure
            else:
                found.runs.append((half, outputs))
                suspects = rest
        found.errors[suspects[0]] = error
        suspects = ()
        if untried:
            try:
                outputs = run(untried)
            except ExampleFailed as failure:
                suspects, error = untried, failure
            else:
                found.runs.append((untried, outputs))
    return found

"""Finding the rows on which a batch failed, so that the others get the answer they would get alone.

Theory of operation. A batch that raised holds at least one bad row: its rows are the first *suspects*. Of suspects a
part is tried; if it works it is answered and the bad row is among the others, which need no run to be suspected; if it
fails the suspects are that part, and the others are put aside, as nothing is known of them any more. One suspect that
is left is the bad row, and the last failure was about it: all that failed with it have worked. Then what was put aside
is tried; if that fails the search begins again in it.

What is tried first of ``m`` suspects is what they are over a power of two (half, if they are one): finding a bad row
then takes at most ``ceil(log2(m))`` runs, and fewer the more is put aside. After the first bad row all that was put
aside is tried at once, as there is most often one; after later ones at most half of the batch's power of two, so that
the search in it is one run shorter and pays for the try. For ``k`` bad rows of ``n``, with ``L = ceil(log2(n))``, the
further runs are at most

    L + 1          for one bad row,
    k * L + 1      where n <= 3/4 * 2**L,
    k * L + 2      where n <= 7/8 * 2**L,    k * L + 3 otherwise.

``k * L + 1`` for every ``n`` and ``k`` can't be had: for 4 rows a search of all strategies finds none that gets by with
it (tests/batching/test_isolate.py), as one run tells one bit. A batch of one row needs no run.

A search may be cut into *slices*, so that others get their turn: once it has used up its runs it ends at the next bad
row, where only what was put aside is open. Those rows are ``unsettled``: to be run as a batch, which is the try that
would have come next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from server.batching.errors import ExampleFailed

__all__ = ["Isolated", "RowErrors", "isolate", "runs_of_slice"]

Outputs = TypeVar("Outputs")


class RowErrors(Exception):
    """Some rows of a batch failed or are not settled, the others have their results.

    ``errors`` maps rows of the batch to errors; ``unsettled`` are rows that are to be run again, in another batch.
    """

    def __init__(self, errors: Mapping[int, ExampleFailed], unsettled: Sequence[int] = ()) -> None:
        super().__init__(f"{len(errors)} rows failed")
        self.errors = errors
        self.unsettled = frozenset(unsettled)


class Isolated(Generic[Outputs]):
    """Where each row's result is: ``runs`` are (rows, outputs), row ``rows[i]`` at position i of its outputs."""

    def __init__(self) -> None:
        self.runs: list[tuple[Sequence[int], Outputs]] = []
        self.errors: dict[int, ExampleFailed] = {}
        #: Rows that were not settled within the runs that were allowed.
        self.unsettled: Sequence[int] = ()


def runs_of_slice(n_rows: int) -> int:
    """Return how many further runs a batch may use up at a time: enough for any two bad rows.

    More of them are a caller's doing rather than chance, and others should not wait for all of it.
    """
    return 2 * (n_rows - 1).bit_length() + 3


def isolate(
    rows: Sequence[int],
    error: ExampleFailed,
    run: Callable[[Sequence[int]], Outputs],
    *,
    max_runs: int | None = None,
) -> Isolated[Outputs]:
    """Run the rows of a batch that failed with ``error`` until only the bad ones have no result.

    ``run`` executes some of the rows, and raises ExampleFailed if one of them is bad. After ``max_runs`` the search
    ends at the next bad row that it finds. Errors: what else ``run`` raises.
    """
    found: Isolated[Outputs] = Isolated()
    n_runs = 0

    def works(tried: Sequence[int]) -> bool:
        nonlocal error, n_runs
        n_runs += 1
        try:
            outputs = run(tried)
        except ExampleFailed as failure:
            error = failure
            return False
        found.runs.append((tried, outputs))
        return True

    half = 1 << max(0, (len(rows) - 1).bit_length() - 1)
    suspects: Sequence[int] = rows
    aside: list[int] = []
    while True:
        while len(suspects) > 1:
            n_over = len(suspects) - (1 << ((len(suspects) - 1).bit_length() - 1))
            tried, rest = suspects[:n_over], suspects[n_over:]
            if works(tried):
                suspects = rest
            else:
                suspects, aside = tried, [*rest, *aside]
        found.errors[suspects[0]] = error
        if max_runs is not None and n_runs >= max_runs:
            found.unsettled = aside
            return found
        while True:
            if not aside:
                return found
            at_once = len(aside) if len(found.errors) == 1 else half
            tried, aside = aside[:at_once], aside[at_once:]
            if not works(tried):
                suspects = tried
                break

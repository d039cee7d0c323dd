"""Which versions of a model may go by themselves: a decision, which the store carries out.

Kept are the newest ``keep`` that are built, and as many of those that failed; and of the others whatever is in use: the
active version, those that labels lead to, those that are being built or wait to serve, and what the caller names.
"""

from __future__ import annotations

from collections.abc import Collection

from server.store.index import ModelIndex
from server.store.records import State

__all__ = ["collectable"]


def collectable(index: ModelIndex, *, keep: int, in_use: Collection[int] = ()) -> list[int]:
    """Return the versions that nobody needs, oldest first."""
    held = {index.active, index.unloaded, *index.leading().values(), *in_use}
    going = []
    for state in (State.BUILT, State.FAILED):
        numbers = sorted(number for number, record in index.versions.items() if record.state is state)
        going += [
            number
            for number in numbers[: max(len(numbers) - keep, 0)]
            if number not in held and not (state is State.BUILT and index.versions[number].awaits_switch)
        ]
    return sorted(going)

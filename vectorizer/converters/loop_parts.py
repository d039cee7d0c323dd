"""Part of a batch: the rows that are left of a loop that shrinks, and what of its variables is not cut for them.

Cutting copies. What is a whole sequence for each row, read or written one element in each step, keeps all rows instead,
and a step takes those of the rows that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from vectorizer._pfor import list_content, wrap_list
from vectorizer.converters.loop_plans import LoopOp, Plan
from vectorizer.converters.reads import Read, lists_kept_whole, reads_of

__all__ = ["Part", "part_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """The rows that a loop runs on."""

    #: How many the whole batch has.
    rows: int
    reads: tuple[Read, ...] = ()
    #: Lists, constant in the loop or changing, of which nothing is asked but elements.
    lists: frozenset[int] = frozenset()
    #: Which rows are left. Shapes: [n]; None for all.
    places: tf.Tensor | None = None

    def shrunk(self, places: tf.Tensor) -> Part:
        """Return the part at ``places`` of this one."""
        return replace(self, places=places if self.places is None else tf.gather(self.places, places))

    def is_whole(self, index: int) -> bool:
        """Return True if a variable has all rows, whichever are left."""
        return index in self.lists or any(read.sequence == index for read in self.reads)

    def at_its_rows(self, index: int, value: Any) -> Any:
        """Return a list that has all rows as one whose elements are taken and put at those that are left."""
        content = list_content(value)
        if self.places is None or index not in self.lists or not content.per_row:
            return value
        return wrap_list(replace(content, places=self.places))

    def elements(self, values: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Return what the body reads by its counters."""
        return [(read.output, read.element(values[read.counter].t, self.places)) for read in self.reads]


def part_of(loop: LoopOp, plan: Plan) -> Part:
    """Return all rows of a loop, as what it shrinks from."""
    unlent = [index for index in range(len(loop.inputs)) if index not in plan.lent]
    constant = [index for index in unlent if index not in plan.changing]
    reads = reads_of(loop.pfor_input, loop.cond, loop.body, loop.trips, among=constant)
    return Part(
        rows=loop.rows,
        reads=tuple(read for read in reads if not getattr(plan.forms.get(read.counter), "is_stacked", True)),
        lists=lists_kept_whole(
            loop.cond, loop.body, loop.inputs, among=[*constant, *plan.written.intersection(unlent)]
        ),
    )

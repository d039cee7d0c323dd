"""``while`` of one example -> one ``while`` of all rows, masked.

Theory of operation. Each row has its own condition; the loop runs as long as any row's holds, and the batch stays
whole. What pfor does instead, cutting the finished rows out at every step, copies the whole state each time, makes
shapes dynamic, and so keeps XLA away.

1. ``active[rows]`` says which rows are still in the loop. Rows only ever leave.
2. A loop variable that differs per row is *stacked*: an active row takes its new value, another keeps its own. If
   nothing reads it after the loop, it matters to active rows alone, and no step chooses.
3. A variable that is the same for all rows, such as a step counter, stays ONE value: all active rows agree on it,
   and nobody asks the others. Masking it would make ``x[t]`` a gather. Where something after the loop reads it, a
   stacked copy is kept of the value that each row left with.
4. Which variables are stacked is a fixed point: a body can make a stacked value of an invariant one. It is found
   on scratch graphs, before the loop is built.
5. Rows that have left still compute. Whatever of theirs reaches an op that can raise, state or not, they borrow in
   each step from a row that is still in the loop: their own last state does not do, as the shared variables go on
   (``x[n - 1 - t]``).
6. Tensor lists are loop variables like others (``lists.py``, ``stacks.py``), made of tensors whose rows are a later
   dimension; one that is only written to takes the mask along instead of being chosen from as a whole.

A condition that is the same for all rows needs no mask: the loop only gets a wider body.
Source: the masked form of vectorizing a loop with divergent trip counts, as SIMD compilers do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import tensorflow as tf

from vectorizer._pfor import (
    Converter,
    called_graphs,
    copied_call,
    differing,
    list_content,
    stacked,
    stock_registry,
    wrap,
    wrap_list,
)
from vectorizer.checks import checks_in
from vectorizer.converters.bounds import remember_bound
from vectorizer.converters.contents import Content
from vectorizer.converters.known import lent
from vectorizer.converters.loop_parts import Part, part_of
from vectorizer.converters.loop_plans import LoopOp, Plan, UnfixedShapeError, planned
from vectorizer.converters.masks import current_mask, masked, of_rows
from vectorizer.converters.partitions import first_rows, loop_sizes, shrinking
from vectorizer.converters.rows import borrowed, rows_at, rows_put, slots_of, where_at
from vectorizer.converters.value_forms import StackForm, cut, flat

__all__ = ["CONVERTERS"]

#: The tensors that the changing variables are made of.
_State = dict[int, list[tf.Tensor]]
#: The rows that are in a loop, its variables, and what rows that have left it had of shared variables.
_Begun = tuple[tf.Tensor, _State, dict[int, tf.Tensor]]


class _Loop:
    """One conversion of a While op."""

    def __init__(self, loop: LoopOp, plan: Plan, values: Sequence[Any], *, part: Part | None = None) -> None:
        self._loop = loop
        self._plan = plan
        self._values = list(values)
        self._part = part or Part(loop.rows)

    def convert(self) -> list[Any]:
        """Build the loop: the variables after it."""
        final = self._masked() if self._plan.cond_is_stacked else self._plain()
        trips = self._loop.trips
        for counter in trips.counters if trips is not None else ():
            if counter in final:
                remember_bound(final[counter].t, trips.last(counter))  # type: ignore[union-attr]
        return [_unbounded(final.get(index, value)) for index, value in enumerate(self._values)]

    def _start(self) -> _State:
        plan = self._plan
        return plan.packed(
            {index: flat(self._values[index], plan.forms[index], self._loop.rows) for index in plan.changing}
        )

    def _given(self, state: _State, *, lender: tf.Tensor | None = None) -> list[Any]:
        """Return all variables, the changing ones replaced; those that an op may fail on with a lender's rows."""
        plan = self._plan
        changed = {index: plan.given(index, leaves) for index, leaves in plan.unpacked(state).items()}
        values = [self._part.at_its_rows(index, changed.get(index, value)) for index, value in enumerate(self._values)]
        if lender is None:
            return values
        return [lent(value, lender) if index in plan.lent else value for index, value in enumerate(values)]

    def _tested(self, values: Sequence[Any]) -> tf.Tensor:
        return self._loop.run(self._loop.cond, values)[0].t

    def _made(self, values: Sequence[Any]) -> _State:
        """Convert the body: the changing variables' new values."""
        plan, loop = self._plan, self._loop
        made = loop.run(loop.body, values, known=self._part.elements(values))
        new = {}
        for index in plan.changing:
            origin = getattr(list_content(made[index]), "origin", None)
            assert index not in plan.written or origin == index, "a list is treated as it was planned"
            new[index] = flat(made[index], plan.forms[index], loop.rows)
        return plan.packed(new)

    def _shapes(self) -> dict[int, list[tf.TensorShape]]:
        part, rows = self._part, self._loop.rows
        return {
            index: [
                tf.TensorShape(leaf.shape)
                for leaf in self._plan.leaves(index, part.rows if index in part.lists else rows)
            ]
            for index in self._plan.changing
        }

    def _plain(self) -> dict[int, Any]:
        """Build the loop of a condition that all rows share."""

        def cond(state: _State) -> tf.Tensor:
            return self._tested(self._given(state))

        def body(state: _State) -> tuple[_State]:
            return (self._made(self._given(state)),)

        (state,) = tf.while_loop(cond, body, (self._start(),), shape_invariants=(self._shapes(),))
        return {index: self._plan.forms[index].built(leaves) for index, leaves in self._plan.unpacked(state).items()}

    def _masked(self) -> dict[int, Any]:
        """Build the loop of a condition that each row has for itself."""
        start = self._start()
        active = self._tested(self._given(start))
        around = current_mask()
        if around is not None:
            active = active & around
        sizes = loop_sizes(self._loop.rows) if self._plan.may_partition else ()
        if sizes:
            self._part = part_of(self._loop, self._plan)
        with shrinking() if sizes else nullcontext():
            _, state, left_with = self._advanced((active, start, self._shared(start)), sizes)
        return {index: self._left(index, leaves, left_with) for index, leaves in self._plan.unpacked(state).items()}

    def _shared(self, state: _State) -> dict[int, tf.Tensor]:
        """Return what rows leave with, of variables that all rows in the loop share: values, and depths of stacks."""
        plan = self._plan
        kept = {}
        for index in plan.changing:
            form = plan.forms[index]
            is_depth = isinstance(form, StackForm) and not form.per_row_depth and index not in plan.same_depth
            if index in plan.read_shared or is_depth:
                kept[index] = stacked(wrap(state[index][0], stacked=False), self._loop.pfor_input)
        return kept

    def _left(self, index: int, leaves: Sequence[tf.Tensor], left_with: dict[int, tf.Tensor]) -> Any:
        """Return a variable after the loop, for each row as it left with it."""
        form = self._plan.forms[index]
        if index in self._plan.read_shared:
            return wrap(left_with[index], stacked=True)
        if isinstance(form, StackForm) and not form.per_row_depth:
            depth = left_with[self._plan.same_depth.get(index, index)]
            return replace(form, per_row_depth=True).built([depth, *leaves[1:]])
        return form.built(leaves)

    def _advanced(self, begun: _Begun, sizes: Sequence[int]) -> _Begun:
        """Run the loop until no row is in it; in a batch of fewer rows as soon as they fit into one of ``sizes``."""
        fewest = sizes[0] if sizes else 0

        def cond(active: tf.Tensor, *_: Any) -> tf.Tensor:
            return tf.reduce_sum(tf.cast(active, tf.int32)) > fewest if fewest else tf.reduce_any(active)

        active, _, left_with = begun
        shapes = (active.shape, self._shapes(), {index: was.shape for index, was in left_with.items()})
        begun = tf.while_loop(cond, self._step, begun, shape_invariants=shapes)
        if not fewest:
            return begun

        def rest() -> _Begun:
            return self._few_advanced(begun, sizes)

        return tf.cond(tf.reduce_any(begun[0]), rest, lambda: begun)  # type: ignore[no-any-return]

    def _few_advanced(self, begun: _Begun, sizes: Sequence[int]) -> _Begun:
        """Go on with the rows that are still in the loop, cut out of the batch, and put them back into it after."""
        active, state, left_with = begun
        plan, rows = self._plan, self._loop.rows
        places = first_rows(active, sizes[0])
        slots = slots_of(places, rows)
        part = self._part.shrunk(places)
        axes = {
            index: [None if index in part.lists else leaf.axis for leaf in plan.leaves(index, rows)]
            for index in plan.changing
        }
        few = _Loop(
            self._loop.at_rows(sizes[0]),
            plan,
            [
                value if index in plan.changing or part.is_whole(index) else cut(value, places, rows)
                for index, value in enumerate(self._values)
            ],
            part=part,
        )
        few_state = {
            index: [rows_at(leaf, places, axis) for leaf, axis in zip(leaves, axes[index], strict=True)]
            for index, leaves in state.items()
        }
        few_left = {index: rows_at(value, places, 0) for index, value in left_with.items()}
        with of_rows(places):
            few_active, made, left = few._advanced((tf.gather(active, places), few_state, few_left), sizes[1:])
        return (
            rows_put(active, slots, few_active, 0),
            {
                index: [
                    rows_put(whole, slots, new, axis)
                    for whole, new, axis in zip(state[index], leaves, axes[index], strict=True)
                ]
                for index, leaves in made.items()
            },
            {index: rows_put(left_with[index], slots, value, 0) for index, value in left.items()},
        )

    def _step(self, active: tf.Tensor, state: _State, left_with: dict[int, tf.Tensor]) -> _Begun:
        plan = self._plan
        lender = borrowed(active) if plan.lent else None
        # There is an active row in every step; one that the surroundings are for too only where they are for all.
        with masked(active, is_some=current_mask() is None):
            made = self._made(self._given(state, lender=lender))
            # Only rows that went on are asked, and they went on by their own values.
            remain = active & self._tested(self._tested_on(made, lender))
        left_with = {
            index: where_at(active, value, left_with[index], axis=0) for index, value in self._shared(made).items()
        }
        return remain, self._chosen(active, made, state), left_with

    def _tested_on(self, made: _State, lender: tf.Tensor | None) -> list[Any]:
        """Return the variables for the condition: rows that have left made theirs of what they borrowed."""
        values = self._given(made)
        if lender is None:
            return values
        lends = self._plan.lent.difference(self._plan.changing)
        return [lent(value, lender) if index in lends else value for index, value in enumerate(values)]

    def _chosen(self, mask: tf.Tensor, made: _State, state: _State) -> _State:
        """Return the new values of the rows in the loop, and the old ones of the others."""
        plan = self._plan
        return {
            index: [
                new if plan.is_masked_within(index, leaf) else where_at(mask, new, old, axis=leaf.axis or 0)
                for leaf, new, old in zip(plan.leaves(index, self._loop.rows), leaves, state[index], strict=True)
            ]
            for index, leaves in made.items()
        }


def _unbounded(value: Any) -> Any:
    """Return a list as one that no later write is known to stay within."""
    content = list_content(value)
    return wrap_list(replace(content, is_bounded=False)) if isinstance(content, Content) else value


def _while(pfor_input: Any) -> Any:
    if not any(value.is_stacked for value in pfor_input.inputs):
        # It reads a variable, or pfor would not ask.
        return copied_call(pfor_input)
    try:
        loop = LoopOp(pfor_input)
        plan = planned(loop)
    except UnfixedShapeError:
        if any(list_content(value) is not None or differing(value) for value in pfor_input.inputs):
            raise NotImplementedError(
                "tensors in the loop change their shape, which a TensorArray in it, or a value whose length differs "
                "from example to example, can't follow; carry tensors of their largest size and a number of elements"
            ) from None
        if checks_in([pfor_input.op], called_graphs):
            raise NotImplementedError(
                "tensors in the loop change their shape, so that an assert in it would be lost"
            ) from None
        return stock_registry()["While"](pfor_input)
    return _Loop(loop, plan, loop.inputs).convert()


CONVERTERS: dict[str, Converter] = {"StatelessWhile": _while, "While": _while}

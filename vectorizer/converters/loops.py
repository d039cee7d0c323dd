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
6. Tensor lists are loop variables like others (``lists.py``), except that their rows are the second dimension, and
   that a list which is only written to takes the mask along instead of being chosen from as a whole.

A condition that is the same for all rows needs no mask: the loop only gets a wider body.
Source: the masked form of vectorizing a loop with divergent trip counts, as SIMD compilers do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tensorflow as tf

from vectorizer._pfor import (
    Converter,
    at_rows,
    called_graph,
    called_graphs,
    convert_body,
    differing,
    list_content,
    rows_of,
    scratch_graph,
    stacked,
    stock_registry,
    wrap,
    wrap_list,
)
from vectorizer.checks import checks_in
from vectorizer.converters.costly import is_costly
from vectorizer.converters.lists import Content, as_list, captured, lent, listed
from vectorizer.converters.masks import current_mask, masked, of_rows
from vectorizer.converters.partitions import first_rows, loop_sizes
from vectorizer.converters.raising import raising_ops
from vectorizer.converters.rows import borrowed, elements_where, rows_at, rows_put, rows_where
from vectorizer.converters.trips import Trips, passed, same, trips_of, writes_of

__all__ = ["CONVERTERS"]

_CHANGES = (
    "a value whose length differs from example to example can be read in a loop, but not be a loop variable, nor stand "
    "beside one that changes its shape; carry a tensor of its largest size and the number of valid elements"
)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What was found out about a loop before it is built. Variables are counted as the op's inputs."""

    #: Which variables the body may change; the others are constants of the loop.
    changing: tuple[int, ...]
    stacked: tuple[bool, ...]
    cond_is_stacked: bool
    #: What reaches an op that can raise.
    lent: frozenset[int]
    #: What something after the loop reads.
    read: frozenset[int]
    #: Shared variables among them.
    read_shared: tuple[int, ...]
    #: What the changing lists are before the loop, of known elements for each row.
    lists: dict[int, Content]
    #: Lists that are only written to, so that the mask can go along.
    written: frozenset[int]
    #: The work grows with the rows enough to cut rows that have left out of the batch.
    is_costly: bool

    def row_axis(self, index: int) -> int | None:
        """Return which dimension of a changing variable counts the rows; None if all rows share it."""
        if index in self.lists:
            return 1
        return 0 if self.stacked[index] else None


#: The rows that are in a loop, its variables, and what rows that have left it had of shared variables.
_Begun = tuple[tf.Tensor, dict[int, tf.Tensor], dict[int, tf.Tensor]]


class _Loop:
    """One conversion of a While op."""

    def __init__(self, pfor_input: Any) -> None:
        self._pfor_input = pfor_input
        self._rows = rows_of(pfor_input)
        self._cond = called_graph(pfor_input.op, "cond")
        self._body = called_graph(pfor_input.op, "body")
        self._inputs: list[Any] = [listed(value) for value in pfor_input.inputs]
        self._changing = tuple(index for index in range(len(self._inputs)) if not same(self._body, index))

    def is_maskable(self) -> bool:
        """Rows of different shapes can't share a tensor, and lists need a known length."""
        for index in self._changing:
            given, made = self._body.inputs[index], self._body.outputs[index]
            if differing(self._inputs[index]):
                raise NotImplementedError(_CHANGES)
            if made.dtype == tf.variant:
                if list_content(self._inputs[index]) is None:
                    return False
            elif not given.shape.is_fully_defined() or given.shape != made.shape:
                return False
        return True

    def convert(self) -> list[Any]:
        self._grow_lists()
        plan = self._plan()
        values = [
            wrap(stacked(value, self._pfor_input), stacked=True)
            if is_stacked and list_content(value) is None and not differing(value)
            else value
            for value, is_stacked in zip(self._inputs, plan.stacked, strict=True)
        ]
        final = self._masked(plan, values) if plan.cond_is_stacked else self._plain(plan, values)
        return [final.get(index, value) for index, value in enumerate(values)]

    def _grow_lists(self) -> None:
        """Give lists that grow in the loop the length that they have after it, where that is known."""
        trips: Trips | None = None
        for index in self._changing:
            content = list_content(self._inputs[index])
            if content is None:
                continue
            content = replace(content, is_bounded=False)
            self._inputs[index] = wrap_list(content)
            writes = writes_of(self._body, index, allowed=frozenset({"TensorListGetItem"}))
            if not writes or not all(write.get_attr("resize_if_index_out_of_bounds") for write in writes):
                continue
            trips = trips or trips_of(self._pfor_input.op, self._cond, self._body)
            if trips is None:
                continue
            variables = [_variable(self._body, write.inputs[1]) for write in writes]
            if any(variable not in trips.counters for variable in variables):
                continue
            most = 1 + max(trips.highest(variable) for variable in variables if variable is not None)
            needed = most if trips.most else 0
            # One write in each step makes the list exactly so long; of several, some may lie beside its way.
            if needed <= content.n or (trips.is_exact and len(writes) == 1):
                self._inputs[index] = wrap_list(replace(content.grown(needed), is_bounded=True))

    def _plan(self) -> _Plan:
        is_stacked = [value.is_stacked for value in self._inputs]
        lists: dict[int, Content] = {}
        for index in self._changing:
            content = list_content(self._inputs[index])
            if content is not None:
                lists[index] = content.of_rows(self._rows)
        conversions: list[Any] = []
        while True:
            with scratch_graph(conversions) as graph:
                values = []
                for index, (value, wanted) in enumerate(zip(self._inputs, is_stacked, strict=True)):
                    if list_content(value) is not None:
                        values.append(wrap_list(replace(lists[index], origin=index)) if index in lists else value)
                        continue
                    inside = captured(value, graph)
                    is_own = wanted and not differing(value)
                    values.append(wrap(stacked(inside, self._pfor_input), stacked=True) if is_own else inside)
                cond = convert_body(self._pfor_input, self._cond, values)[0]
                made = convert_body(self._pfor_input, self._body, values)
            made_lists = {index: _made_list(made[index], content) for index, content in lists.items()}
            grown = [was or made[index].is_stacked for index, was in enumerate(is_stacked)]
            elements_known = {
                index: content.of_rows(self._rows, made_lists[index].element) for index, content in lists.items()
            }
            if grown == is_stacked and all(elements_known[index] is content for index, content in lists.items()):
                break
            is_stacked, lists = grown, elements_known
        if any(content.dense is None for content in lists.values()):
            raise NotImplementedError("nothing shows the shape of a TensorArray's elements: declare element_shape")
        op = self._pfor_input.op
        read = frozenset(index for index in self._changing if _is_read(op.outputs[index]))
        lent = self._reaching(raising_ops(conversions))
        return _Plan(
            changing=self._changing,
            stacked=tuple(is_stacked),
            cond_is_stacked=cond.is_stacked,
            lent=lent,
            read=read,
            read_shared=tuple(index for index in self._changing if index in read and not is_stacked[index]),
            lists=lists,
            written=frozenset(
                index for index, content in made_lists.items() if content.origin == index and index not in lent
            ),
            is_costly=is_costly(conversions),
        )

    def _reaching(self, ops: Sequence[Any]) -> frozenset[int]:
        """Return the loop variables on which ops of the body or the condition depend."""
        if any(op.graph is not self._body and op.graph is not self._cond for op in ops):
            return frozenset(range(len(self._inputs)))  # an op of a branch or a loop within
        found = _reached(self._body, [tensor for op in ops if op.graph is self._body for tensor in op.inputs])
        tested = _reached(self._cond, [tensor for op in ops if op.graph is self._cond for tensor in op.inputs])
        # The condition is tested on what the body makes.
        return found | tested | _reached(self._body, [self._body.outputs[index] for index in tested])

    def _run(self, graph: Any, values: Sequence[Any], changed: dict[int, tf.Tensor], plan: _Plan) -> list[Any]:
        """Convert a function of the loop, with the changing variables replaced."""

        def replaced(index: int) -> Any:
            if index not in plan.lists:
                return wrap(changed[index], stacked=plan.stacked[index])
            content = plan.lists[index].with_dense(changed[index])
            return wrap_list(replace(content, origin=index if index in plan.written else None))

        return convert_body(
            self._pfor_input,
            graph,
            [replaced(index) if index in changed else value for index, value in enumerate(values)],
        )

    def _step(self, values: Sequence[Any], changed: dict[int, tf.Tensor], plan: _Plan) -> dict[int, tf.Tensor]:
        """Convert the body: the changing variables' new values."""
        made = self._run(self._body, values, changed, plan)
        new = {}
        for index in plan.changing:
            content = list_content(made[index])
            if content is not None:
                assert (content.origin == index) == (index in plan.written), "a list is treated as it was planned"
                new[index] = content.of_rows(self._rows).dense
            else:
                new[index] = stacked(made[index], self._pfor_input) if plan.stacked[index] else made[index].t
        return new

    def _final(self, index: int, value: tf.Tensor, plan: _Plan) -> Any:
        """Wrap what a variable is after the loop."""
        if index not in plan.lists:
            return wrap(value, stacked=plan.stacked[index] or index in plan.read_shared)
        content = replace(plan.lists[index].with_dense(value), is_bounded=False)
        return wrap_list(content if index in plan.written else replace(content, origin=None))

    def _plain(self, plan: _Plan, values: Sequence[Any]) -> dict[int, Any]:
        """Build the loop of a condition that all rows share."""

        def cond(*state: tf.Tensor) -> tf.Tensor:
            return self._run(self._cond, values, dict(zip(plan.changing, state, strict=True)), plan)[0].t

        def body(*state: tf.Tensor) -> list[tf.Tensor]:
            return list(self._step(values, dict(zip(plan.changing, state, strict=True)), plan).values())

        start = _start(values, plan)
        final = tf.while_loop(cond, body, [start[index] for index in plan.changing])
        plan = replace(plan, read_shared=())
        return {index: self._final(index, value, plan) for index, value in zip(plan.changing, final, strict=True)}

    def _masked(self, plan: _Plan, values: Sequence[Any]) -> dict[int, Any]:
        """Build the loop of a condition that each row has for itself."""
        start = _start(values, plan)
        active = self._run(self._cond, values, start, plan)[0].t
        left_with = {index: stacked(values[index], self._pfor_input) for index in plan.read_shared}
        sizes = loop_sizes(self._rows) if plan.is_costly else ()
        state, left_with = self._advanced(plan, values, (active, start, left_with), sizes)
        rows = {**state, **left_with}
        return {index: self._final(index, rows[index], plan) for index in plan.changing}

    def _advanced(
        self, plan: _Plan, values: Sequence[Any], begun: _Begun, sizes: Sequence[int]
    ) -> tuple[dict[int, tf.Tensor], dict[int, tf.Tensor]]:
        """Run the loop until no row is in it; in a batch of fewer rows as soon as they fit into one of ``sizes``."""
        fewest = sizes[0] if sizes else 0

        def cond(active: tf.Tensor, *_: Any) -> tf.Tensor:
            return tf.reduce_sum(tf.cast(active, tf.int32)) > fewest if fewest else tf.reduce_any(active)

        active, state, left_with = tf.while_loop(cond, partial(self._masked_step, plan, values), begun)
        if not fewest:
            return state, left_with

        def rest() -> tuple[dict[int, tf.Tensor], dict[int, tf.Tensor]]:
            return self._few_advanced(plan, values, (active, state, left_with), sizes)

        return tf.cond(tf.reduce_any(active), rest, lambda: (state, left_with))  # type: ignore[no-any-return]

    def _few_advanced(
        self, plan: _Plan, values: Sequence[Any], begun: _Begun, sizes: Sequence[int]
    ) -> tuple[dict[int, tf.Tensor], dict[int, tf.Tensor]]:
        """Go on with the rows that are still in the loop, cut out of the batch, and put them back into it after."""
        active, state, left_with = begun
        places = first_rows(active, sizes[0])
        few = _Loop(at_rows(self._pfor_input, sizes[0]))
        few_plan = replace(
            plan,
            lists={
                index: content.with_dense(rows_at(state[index], places, 1)) for index, content in plan.lists.items()
            },
        )
        with of_rows(places):
            made, left = few._advanced(
                few_plan,
                [value if index in plan.changing else lent(value, places) for index, value in enumerate(values)],
                (
                    tf.gather(active, places),
                    {index: rows_at(value, places, plan.row_axis(index)) for index, value in state.items()},
                    {index: rows_at(value, places, 0) for index, value in left_with.items()},
                ),
                sizes[1:],
            )
        return (
            {index: rows_put(state[index], places, value, plan.row_axis(index)) for index, value in made.items()},
            {index: rows_put(left_with[index], places, value, 0) for index, value in left.items()},
        )

    def _masked_step(
        self,
        plan: _Plan,
        values: Sequence[Any],
        active: tf.Tensor,
        state: dict[int, tf.Tensor],
        left_with: dict[int, tf.Tensor],
    ) -> _Begun:
        # What is written under a mask needs no choice.
        own = [index for index in plan.changing if plan.stacked[index] and index not in plan.written]

        def chosen(index: int, mask: tf.Tensor, new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
            return elements_where(mask, new, old) if index in plan.lists else rows_where(mask, new, old)

        given, constants = dict(state), list(values)
        if plan.lent:
            lender = borrowed(active)
            for index in plan.lent:
                if index in own:
                    given[index] = tf.gather(state[index], lender, axis=int(index in plan.lists))
                elif index not in plan.changing:
                    constants[index] = lent(values[index], lender)
        # There is an active row in every step; one that the surroundings are for too only where they are for all.
        with masked(active, is_some=current_mask() is None):
            made = self._step(constants, given, plan)
            remain = active & self._run(self._cond, constants, made, plan)[0].t
        left_with = {
            index: rows_where(active, stacked(wrap(made[index], stacked=False), self._pfor_input), was)
            for index, was in left_with.items()
        }
        advanced = {
            index: chosen(index, active, new, state[index]) if index in own and index in plan.read else new
            for index, new in made.items()
        }
        return remain, advanced, left_with


def _start(values: Sequence[Any], plan: _Plan) -> dict[int, Any]:
    return {index: plan.lists[index].dense if index in plan.lists else values[index].t for index in plan.changing}


def _is_read(tensor: Any) -> bool:
    """Return True if something is computed from a tensor. TensorFlow copies each result of a loop, read or not."""
    if any(tensor is output for output in getattr(tensor.graph, "outputs", ())):
        return True
    return any(user.type != "Identity" or _is_read(user.outputs[0]) for user in tensor.consumers())


def _reached(graph: Any, tensors: Sequence[Any]) -> frozenset[int]:
    """Return which inputs of a graph the tensors in it are computed from."""
    positions = {given.name: index for index, given in enumerate(graph.inputs)}
    found: set[int] = set()
    seen: set[str] = set()
    waiting = list(tensors)
    while waiting:
        tensor = waiting.pop()
        if tensor.name in positions:
            found.add(positions[tensor.name])
        elif tensor.op.name not in seen:
            seen.add(tensor.op.name)
            waiting.extend(tensor.op.inputs)
    return frozenset(found)


def _variable(body: Any, tensor: Any) -> int | None:
    """Return which loop variable a tensor in the body is."""
    source = passed(tensor)
    return next((index for index, given in enumerate(body.inputs) if given is source), None)


def _made_list(made: Any, given: Content) -> Content:
    """Return the list that a body made of one that was given to it."""
    content = as_list(made)
    if content is None or content.n != given.n or content.dtype != given.dtype:
        raise NotImplementedError(
            "a TensorArray is replaced in a loop by one whose length is not seen to be the same: give it its largest "
            "size, tf.TensorArray(dtype, size=n)"
        )
    return content


def _while(pfor_input: Any) -> Any:
    loop = _Loop(pfor_input)
    if loop.is_maskable():
        return loop.convert()
    if any(differing(value) for value in pfor_input.inputs):
        raise NotImplementedError(_CHANGES)
    if any(list_content(value) is not None for value in pfor_input.inputs):
        raise NotImplementedError("tensors in the loop change their shape, which a TensorArray in it can't follow")
    if checks_in([pfor_input.op], called_graphs):
        raise NotImplementedError("tensors in the loop change their shape, so that an assert in it would be lost")
    return stock_registry()["While"](pfor_input)


CONVERTERS: dict[str, Converter] = {"StatelessWhile": _while, "While": _while}

"""``while`` of one example -> one ``while`` of all rows, masked.

Theory of operation. Each row has its own condition; the loop runs as long as any row's holds, and the batch stays
whole. What pfor does instead, cutting the finished rows out at every step, copies the whole state each time, makes
shapes dynamic, and so keeps XLA away.

1. ``active[rows]`` says which rows are still in the loop. Rows only ever leave.
2. A loop variable that differs per row is *stacked*: an active row takes its new value, another keeps its own.
3. A variable that is the same for all rows, such as a step counter, stays ONE value: all active rows agree on it,
   and nobody asks the others. Masking it would make ``x[t]`` a gather. Where something after the loop reads it, a
   stacked copy is kept of the value that each row left with.
4. Which variables are stacked is a fixed point: a body can make a stacked value of an invariant one. It is found
   on scratch graphs, before the loop is built.
5. Rows that have left still compute. If the body can raise, they do so on the last state for which their condition
   held, not on the one after it (``x[i]`` with ``i == n``); a row that never entered borrows an active row's.

A condition that is the same for all rows needs no mask: the loop only gets a wider body.
Source: the masked form of vectorizing a loop with divergent trip counts, as SIMD compilers do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, called_graph, convert_body, scratch_graph, stacked, stock_registry, wrap
from vectorizer.converters.raising import can_raise
from vectorizer.converters.rows import borrowed, rows_where

__all__ = ["CONVERTERS"]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What was found out about a loop before it is built. Variables are counted as the op's inputs."""

    #: Which variables the body may change; the others are constants of the loop.
    changing: tuple[int, ...]
    stacked: tuple[bool, ...]
    cond_is_stacked: bool
    must_guard: bool
    #: Shared variables that something after the loop reads.
    read_shared: tuple[int, ...]


class _Loop:
    """One conversion of a While op."""

    def __init__(self, pfor_input: Any) -> None:
        self._pfor_input = pfor_input
        self._cond = called_graph(pfor_input.op, "cond")
        self._body = called_graph(pfor_input.op, "body")
        self._inputs: list[Any] = list(pfor_input.inputs)

    def is_maskable(self) -> bool:
        """Tensor lists have no rows to choose from, and rows of different shapes can't share a tensor."""
        return all(
            given is made or (made.dtype != tf.variant and given.shape.is_fully_defined() and given.shape == made.shape)
            for given, made in zip(self._body.inputs, self._body.outputs, strict=True)
        )

    def convert(self) -> list[Any]:
        plan = self._plan()
        values = [
            wrap(stacked(value, self._pfor_input), stacked=True) if is_stacked else value
            for value, is_stacked in zip(self._inputs, plan.stacked, strict=True)
        ]
        final = self._masked(plan, values) if plan.cond_is_stacked else self._plain(plan, values)
        return [final.get(index, value) for index, value in enumerate(values)]

    def _plan(self) -> _Plan:
        changing = tuple(
            index
            for index, (given, made) in enumerate(zip(self._body.inputs, self._body.outputs, strict=True))
            if given is not made
        )
        is_stacked = [value.is_stacked for value in self._inputs]
        conversions: list[Any] = []
        while True:
            with scratch_graph(conversions) as graph:
                values = []
                for value, wanted in zip(self._inputs, is_stacked, strict=True):
                    inside = wrap(graph.capture(value.t), stacked=value.is_stacked)
                    values.append(wrap(stacked(inside, self._pfor_input), stacked=True) if wanted else inside)
                cond = convert_body(self._pfor_input, self._cond, values)[0]
                made = convert_body(self._pfor_input, self._body, values)
            grown = [was or made[index].is_stacked for index, was in enumerate(is_stacked)]
            if grown == is_stacked:
                break
            is_stacked = grown
        op = self._pfor_input.op
        read = {
            index
            for index in changing
            if op.outputs[index].consumers()
            or any(op.outputs[index] is out for out in getattr(op.graph, "outputs", ()))
        }
        return _Plan(
            changing=changing,
            stacked=tuple(is_stacked),
            cond_is_stacked=cond.is_stacked,
            must_guard=can_raise(conversions),
            read_shared=tuple(index for index in changing if index in read and not is_stacked[index]),
        )

    def _run(self, graph: Any, values: Sequence[Any], changed: dict[int, tf.Tensor], plan: _Plan) -> list[Any]:
        """Convert a function of the loop, with the changing variables replaced."""
        return convert_body(
            self._pfor_input,
            graph,
            [
                wrap(changed[index], stacked=plan.stacked[index]) if index in changed else value
                for index, value in enumerate(values)
            ],
        )

    def _step(self, values: Sequence[Any], changed: dict[int, tf.Tensor], plan: _Plan) -> dict[int, tf.Tensor]:
        """Convert the body: the changing variables' new values."""
        made = self._run(self._body, values, changed, plan)
        return {
            index: stacked(made[index], self._pfor_input) if plan.stacked[index] else made[index].t
            for index in plan.changing
        }

    def _plain(self, plan: _Plan, values: Sequence[Any]) -> dict[int, Any]:
        """Build the loop of a condition that all rows share."""

        def cond(*state: tf.Tensor) -> tf.Tensor:
            return self._run(self._cond, values, dict(zip(plan.changing, state, strict=True)), plan)[0].t

        def body(*state: tf.Tensor) -> list[tf.Tensor]:
            return list(self._step(values, dict(zip(plan.changing, state, strict=True)), plan).values())

        final = tf.while_loop(cond, body, [values[index].t for index in plan.changing])
        return {
            index: wrap(value, stacked=plan.stacked[index]) for index, value in zip(plan.changing, final, strict=True)
        }

    def _masked(self, plan: _Plan, values: Sequence[Any]) -> dict[int, Any]:
        """Build the loop of a condition that each row has for itself."""
        own = [index for index in plan.changing if plan.stacked[index]]
        shared = [index for index in plan.changing if not plan.stacked[index]]
        start = {index: values[index].t for index in plan.changing}
        active = self._run(self._cond, values, start, plan)[0].t
        result = {index: start[index] for index in own}
        if plan.must_guard:
            lender = borrowed(active)
            start.update({index: tf.gather(start[index], lender) for index in own})
        left_with = {index: stacked(values[index], self._pfor_input) for index in plan.read_shared}

        def cond(active: tf.Tensor, *_: Any) -> tf.Tensor:
            return tf.reduce_any(active)

        def body(
            active: tf.Tensor,
            state: dict[int, tf.Tensor],
            result: dict[int, tf.Tensor],
            left_with: dict[int, tf.Tensor],
        ) -> tuple[Any, ...]:
            made = self._step(values, state, plan)
            remain = active & self._run(self._cond, values, made, plan)[0].t
            left_with = {
                index: rows_where(active, stacked(wrap(made[index], stacked=False), self._pfor_input), was)
                for index, was in left_with.items()
            }
            advanced = {index: made[index] for index in shared}
            if plan.must_guard:
                result = {index: rows_where(active, made[index], was) for index, was in result.items()}
                advanced.update({index: rows_where(remain, made[index], state[index]) for index in own})
            else:
                advanced.update({index: rows_where(active, made[index], state[index]) for index in own})
            return remain, advanced, result, left_with

        kept = result if plan.must_guard else {}
        _, state, kept, left_with = tf.while_loop(cond, body, (active, start, kept, left_with))
        rows = {**{index: state[index] for index in own}, **kept, **left_with}
        return {
            index: wrap(rows[index], stacked=True) if index in rows else wrap(state[index], stacked=False)
            for index in plan.changing
        }


def _while(pfor_input: Any) -> Any:
    loop = _Loop(pfor_input)
    if not loop.is_maskable():
        return stock_registry()["While"](pfor_input)
    return loop.convert()


CONVERTERS: dict[str, Converter] = {"StatelessWhile": _while, "While": _while}

"""What has to be known of a loop before it is built: which variables it changes, and the form that each must have.

A body can make a stacked value of a shared one, and an element of a list that was blank: the forms are a fixed point.
It is found on scratch graphs, on placeholders, so that no variable's first value is taken for its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from vectorizer._pfor import (
    at_rows,
    called_graph,
    convert_body,
    list_content,
    rows_of,
    scratch_graph,
    variant_placeholder,
    wrap_list,
)
from vectorizer.converters.contents import Content, Stack
from vectorizer.converters.costly import is_costly
from vectorizer.converters.forms import Form, HandleForm, Leaf, TensorForm
from vectorizer.converters.known import known_value
from vectorizer.converters.raising import raising_operands, raising_ops
from vectorizer.converters.trips import Trips, passed, pushes_of, same, trips_of, writes_of
from vectorizer.converters.value_forms import ListForm, OptionalForm, StackForm, form_of

__all__ = ["LoopOp", "Plan", "UnfixedShapeError", "planned"]

#: What else may happen in a loop to a list that grows in it: its length is what the loop makes it.
_BESIDE_WRITES = frozenset({"TensorListElementShape", "TensorListGetItem", "TensorListPushBack"})


class LoopOp:
    """A While op with its functions, and its inputs with what is in their lists."""

    def __init__(self, pfor_input: Any) -> None:
        """Errors: UnfixedShapeError if a variable's shape is not known."""
        self.pfor_input = pfor_input
        self.op = pfor_input.op
        self.rows = rows_of(pfor_input)
        self.cond = called_graph(pfor_input.op, "cond")
        self.body = called_graph(pfor_input.op, "body")
        #: Which variables the body may change; the others are constants of the loop.
        self.changing = tuple(index for index in range(len(pfor_input.inputs)) if not same(self.body, index))
        inputs = [known_value(value) for value in pfor_input.inputs]
        #: The most steps, where they are seen to have a bound.
        self.trips: Trips | None = trips_of(self.op, self.cond, self.body, inputs)
        self.inputs = self._with_room(inputs)

    def at_rows(self, rows: int) -> LoopOp:
        """Return the loop in a batch of another size."""
        other = copy(self)
        other.pfor_input = at_rows(self.pfor_input, rows)
        other.rows = rows
        return other

    def run(self, graph: Any, values: Sequence[Any], *, known: Sequence[tuple[Any, Any]] = ()) -> list[Any]:
        """Convert a function of the loop, in place; what is ``known`` of its tensors is not converted."""
        return [known_value(value) for value in convert_body(self.pfor_input, graph, values, known=known)]

    def _with_room(self, inputs: list[Any]) -> list[Any]:
        """Give lists that grow in the loop the room that they need until its end, where that is known."""
        for index in self.changing:
            content = list_content(inputs[index])
            if isinstance(content, Content):
                inputs[index] = wrap_list(self._grown(index, replace(content, is_bounded=False)))
            elif isinstance(content, Stack):
                inputs[index] = wrap_list(self._roomy(index, content))
        return inputs

    def _grown(self, index: int, content: Content) -> Content:
        trips = self.trips
        writes = writes_of(self.body, index, allowed=_BESIDE_WRITES)
        if trips is None or not writes or not all(w.get_attr("resize_if_index_out_of_bounds") for w in writes):
            return content
        variables = [_variable(self.body, write.inputs[1]) for write in writes]
        if any(variable not in trips.counters for variable in variables):
            return content
        most = 1 + max(trips.highest(variable) for variable in variables if variable is not None)
        needed = most if trips.most else 0
        # One write in each step makes the list exactly so long; of several, some may lie beside its way.
        if needed <= content.n or (trips.is_exact and len(writes) == 1):
            return replace(content.grown(needed), is_bounded=True)
        return content

    def _roomy(self, index: int, stack: Stack) -> Stack:
        trips = self.trips
        pushes = pushes_of(self.body, index)
        if pushes == 0:
            return stack
        if trips is None or pushes is None or stack.capacity is None:
            return replace(stack, capacity=None)
        most = stack.capacity if stack.depth.known is None else stack.depth.known
        return replace(stack, capacity=max(stack.capacity, most + trips.most * pushes))


class UnfixedShapeError(Exception):
    """A variable of the loop changes its shape, or has none that is known."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What was found out. Variables are counted as the op's inputs."""

    changing: tuple[int, ...]
    #: Of the variables that change.
    forms: dict[int, Form]
    cond_is_stacked: bool
    #: What reaches an op that can raise.
    lent: frozenset[int]
    #: What something after the loop reads.
    read: frozenset[int]
    #: Shared variables among them.
    read_shared: frozenset[int]
    #: Lists that are only written to, pushed to or popped from, so that the mask can go along.
    written: frozenset[int]
    #: Stack -> the stack that always has its depth.
    same_depth: dict[int, int]
    #: The work grows with the rows enough to cut rows that have left out of the batch, which can be put back.
    may_partition: bool

    def leaves(self, index: int, rows: int) -> list[Leaf]:
        """Return what a variable is made of that the loop carries."""
        leaves = self.forms[index].leaves(rows)
        return leaves[1:] if index in self.same_depth else leaves

    def is_masked_within(self, index: int, leaf: Leaf) -> bool:
        """Return True for what needs no choice between rows: whatever writes to it knows the mask."""
        if leaf.axis is None or (index in self.written and leaf.is_written):
            return True
        return index not in self.read and not isinstance(self.forms[index], StackForm)

    def given(self, index: int, leaves: Sequence[tf.Tensor]) -> Any:
        """Return a variable as a wrapped value; lists that are only written to are marked as the loop's own."""
        value = self.forms[index].built(leaves)
        return _marked(value, index) if index in self.written else value

    def packed(self, leaves: dict[int, list[tf.Tensor]]) -> dict[int, list[tf.Tensor]]:
        """Leave out the depths that are those of another stack."""
        return {index: own[1:] if index in self.same_depth else own for index, own in leaves.items()}

    def unpacked(self, state: dict[int, list[tf.Tensor]]) -> dict[int, list[tf.Tensor]]:
        """Put them in again."""
        return {
            index: [state[self.same_depth[index]][0], *own] if index in self.same_depth else own
            for index, own in state.items()
        }


def planned(loop: LoopOp) -> Plan:
    """Find the forms of a loop's variables.

    Errors: UnfixedShapeError; NotImplementedError where what a body makes of a variable has no form in common with it.
    """
    forms = {index: form_of(loop.inputs[index]) for index in loop.changing}
    conversions: list[Any] = []
    while True:
        if any(isinstance(form, TensorForm) and not form.is_fixed for form in forms.values()):
            raise UnfixedShapeError
        with scratch_graph(conversions):
            values = [
                _marked(_placeholder(forms[index], loop), index) if index in forms else value
                for index, value in enumerate(loop.inputs)
            ]
            (cond,) = loop.run(loop.cond, values)
            made = loop.run(loop.body, values)
            grown = {index: form.joined(form_of(made[index])) for index, form in forms.items()}
        lent = _reaching(loop, raising_ops(conversions))
        written = frozenset(
            index
            for index, form in forms.items()
            if _origin(made[index]) == index and (isinstance(form, StackForm) or index not in lent)
        )
        grown = {
            index: _choosable(form, is_masked=cond.is_stacked, is_written=index in written)
            for index, form in grown.items()
        }
        if grown == forms:
            break
        forms = grown
    if any(isinstance(form, ListForm) and form.is_blank for form in forms.values()):
        raise NotImplementedError("nothing shows the shape of a TensorArray's elements: declare element_shape")
    return Plan(
        changing=loop.changing,
        forms=forms,
        cond_is_stacked=cond.is_stacked,
        lent=lent,
        read=frozenset(index for index in forms if _is_read(loop.op.outputs[index])),
        read_shared=frozenset(
            index
            for index, form in forms.items()
            if isinstance(form, TensorForm) and not form.is_stacked and _is_read(loop.op.outputs[index])
        ),
        written=written,
        same_depth=_same_depths(loop, forms, written, values, made),
        may_partition=is_costly(conversions) and not any(_grows(form) for form in forms.values()),
    )


def _choosable(form: Form, *, is_masked: bool, is_written: bool) -> Form:
    """Return the form in which a variable can be chosen row by row, where it has to be."""
    if isinstance(form, ListForm):
        return form.stacked()
    if is_masked and (isinstance(form, OptionalForm) or (isinstance(form, StackForm) and not is_written)):
        return form.stacked()
    return form


def _is_read(tensor: Any) -> bool:
    """Return True if something is computed from a tensor. TensorFlow copies each result of a loop, read or not."""
    if any(tensor is output for output in getattr(tensor.graph, "outputs", ())):
        return True
    return any(user.type != "Identity" or _is_read(user.outputs[0]) for user in tensor.consumers())


def _grows(form: Form) -> bool:
    """Return True if its tensors change their sizes while the graph runs."""
    if isinstance(form, StackForm):
        return form.capacity is None or (form.element is not None and _grows(form.element))
    return isinstance(form, OptionalForm) and any(_grows(part) for part in form.parts or ())


def _same_depths(
    loop: LoopOp, forms: dict[int, Form], written: frozenset[int], values: Sequence[Any], made: Sequence[Any]
) -> dict[int, int]:
    """Find stacks that start at one depth and are pushed to as often in each step."""
    first: dict[Any, int] = {}
    same_depth = {}
    for index in sorted(written):
        form, end = forms[index], list_content(made[index])
        if not isinstance(form, StackForm) or end.depth.base is not list_content(values[index]).depth.base:
            continue
        start = list_content(loop.inputs[index]).depth
        key = (id(start.base), start.offset, start.per_row, form.per_row_depth, end.depth.offset)
        if first.setdefault(key, index) != index:
            same_depth[index] = first[key]
    return same_depth


def _placeholder(form: Form, loop: LoopOp) -> Any:
    if isinstance(form, HandleForm):
        return form.built([variant_placeholder(form.handle)])
    return form.built([tf.compat.v1.placeholder(leaf.dtype, leaf.shape) for leaf in form.leaves(loop.rows)])


def _marked(value: Any, origin: int) -> Any:
    content = list_content(value)
    return wrap_list(replace(content, origin=origin)) if isinstance(content, (Content, Stack)) else value


def _origin(value: Any) -> Any:
    return getattr(list_content(value), "origin", None)


def _reaching(loop: LoopOp, ops: Sequence[Any]) -> frozenset[int]:
    """Return the loop variables on which ops of the body or the condition depend."""
    cond, body = loop.cond, loop.body
    if any(op.graph is not body and op.graph is not cond for op in ops):
        return frozenset(range(len(loop.inputs)))  # an op of a branch or a loop within
    found = _reached(body, [tensor for op in ops if op.graph is body for tensor in raising_operands(op)])
    tested = _reached(cond, [tensor for op in ops if op.graph is cond for tensor in raising_operands(op)])
    # The condition is tested on what the body makes.
    return found | tested | _reached(body, [body.outputs[index] for index in tested])


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

"""Tensor lists that are pushed to and popped from: where a loop keeps what its gradient needs, one dense tensor each.

Theory of operation. The forward loop pushes what each step computes, the backward loop pops it. A stack of one example
becomes ``dense[capacity, rows, *element]`` and a depth.

1. In a loop that masks its rows, all rows that are still in it have pushed as often: they write at one index, and the
   loop notes each row's own depth when it leaves. What others write meanwhile lies above their depth, and means
   nothing: a push needs no mask.
2. Rows whose depths differ read each at its own.
3. What all rows share, as the loop's counter, is pushed once, and not for each row. Constants are not pushed at all.
4. Elements may be stacks, lists and optional values too: loops in loops, and branches in them.
5. The capacity is known where the loop's number of steps is bounded (``trips.py``); XLA compiles it. Elsewhere it
   doubles while the graph runs, and XLA can't.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, keep_from_xla, list_content, rows_of, wrap_list
from vectorizer.converters.contents import Depth, Stack
from vectorizer.converters.forms import ConstantForm, Leaf
from vectorizer.converters.known import empty, known_value
from vectorizer.converters.masks import current_mask
from vectorizer.converters.rows import where_at
from vectorizer.converters.value_forms import StackForm, flat, form_of

__all__ = ["CONVERTERS", "added", "zeroed"]

#: What a stack of unknown size begins with.
_FIRST_CAPACITY = 16


def _own(pfor_input: Any) -> Stack:
    value = known_value(pfor_input.inputs[0])
    content = list_content(value)
    if not isinstance(content, Stack):
        raise NotImplementedError(
            f"{pfor_input.op_type} is used on a list that was not made by pushing: write to a TensorArray instead"
        )
    return content


def _empty(pfor_input: Any) -> Any:
    return wrap_list(empty(pfor_input.op))


def _push(pfor_input: Any) -> Any:
    rows = rows_of(pfor_input)
    return wrap_list(_pushed(_own(pfor_input), known_value(pfor_input.inputs[1]), rows))


def _pushed(stack: Stack, item: Any, rows: int) -> Stack:
    form = form_of(item, may_be_constant=True)
    element = form if stack.element is None else stack.element.joined(form)
    # Below where the loop found it, a stack holds what rows that have left it still need.
    mask = current_mask() if stack.origin is not None and stack.depth.offset < 0 else None
    if stack.depth.per_row or mask is not None:
        element = element.stacked()
    stack = _with_room(stack)
    was = StackForm(stack.dtype, stack.capacity, stack.element, stack.depth.per_row, None)
    _, *dense = was.widened([stack.depth.tensor(), *stack.leaves], replace(was, element=element), rows, ())
    items = flat(item, element, rows, may_be_constant=True)
    at = stack.depth.tensor()
    if mask is not None:
        old = _read(dense, element.leaves(rows), at, per_row=stack.depth.per_row, lender=None, rows=rows)
        items = [
            where_at(mask, new, kept, axis=leaf.axis)
            for new, kept, leaf in zip(items, old, element.leaves(rows), strict=True)
        ]
    leaves = tuple(
        _written(tensor, new, leaf, at, per_row=stack.depth.per_row, rows=rows)
        for tensor, new, leaf in zip(dense, items, element.leaves(rows), strict=True)
    )
    return replace(stack, element=element, leaves=leaves, depth=stack.depth.moved(1))


def _with_room(stack: Stack) -> Stack:
    """Return the stack with room for one element more."""
    depth = stack.depth.known
    if stack.capacity is None:
        return replace(stack, leaves=tuple(_doubled(leaf, stack.depth) for leaf in stack.leaves))
    if depth is None or depth < stack.capacity:
        return stack
    missing = max(depth + 1, 2 * stack.capacity) - stack.capacity
    more = tuple(tf.pad(leaf, [[0, missing], *[[0, 0]] * (leaf.shape.rank - 1)]) for leaf in stack.leaves)
    return replace(stack, capacity=stack.capacity + missing, leaves=more, origin=None)


def _doubled(leaf: tf.Tensor, depth: Depth) -> tf.Tensor:
    keep_from_xla()
    size = tf.shape(leaf)[0]

    def more() -> tf.Tensor:
        room = tf.maximum(size, _FIRST_CAPACITY)
        return tf.concat([leaf, tf.zeros(tf.concat([[room], tf.shape(leaf)[1:]], 0), leaf.dtype)], 0)

    grown = tf.cond(tf.reduce_max(depth.tensor()) < size, lambda: leaf, more)
    return tf.ensure_shape(grown, [None, *leaf.shape[1:]])


def _written(dense: tf.Tensor, item: tf.Tensor, leaf: Leaf, at: tf.Tensor, *, per_row: bool, rows: int) -> tf.Tensor:
    """Write an item at an index. Shapes: dense [capacity, *leaf], item [*leaf], at [] or [rows]."""
    dense, item = _fitted(dense, item)
    if not per_row:
        return tf.tensor_scatter_nd_update(dense, tf.reshape(at, [1, 1]), item[tf.newaxis])
    if leaf.axis == 0:
        return tf.tensor_scatter_nd_update(dense, tf.stack([at, tf.range(rows)], axis=1), item)
    assert leaf.axis is not None, "a stack whose rows differ in depth has nothing that they share"
    places = tf.equal(tf.range(tf.shape(dense)[0])[:, tf.newaxis], at)
    ones = [1] * (dense.shape.rank - leaf.axis - 2)
    here = tf.reshape(places, [-1, *[1] * leaf.axis, rows, *ones])
    return tf.where(here, item[tf.newaxis], dense)


def _fitted(dense: tf.Tensor, item: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Give elements and an item the same sizes, where stacks within grow."""
    if dense.shape[1:].is_fully_defined() and item.shape.is_fully_defined():
        return dense, item
    most = tf.maximum(tf.shape(dense)[1:], tf.shape(item))

    def with_room(tensor: tf.Tensor, missing: tf.Tensor) -> tf.Tensor:
        ends = tf.stack([tf.zeros_like(missing), missing], axis=1)
        return tf.cond(tf.reduce_any(missing > 0), lambda: tf.pad(tensor, ends), lambda: tensor)

    wider = with_room(dense, tf.concat([[0], most - tf.shape(dense)[1:]], 0))
    return tf.ensure_shape(wider, dense.shape), with_room(item, most - tf.shape(item))


def _pop(pfor_input: Any) -> Any:
    rows = rows_of(pfor_input)
    stack = _own(pfor_input)
    if stack.element is None or stack.capacity == 0:
        raise NotImplementedError("it pops from a list to which nothing was pushed")
    if stack.depth.per_row:
        stack = _with_the_leaves_of_rows(stack, rows)
    popped = replace(stack, depth=stack.depth.moved(-1))
    at = tf.maximum(popped.depth.tensor(), 0)
    leaves = _read(
        stack.leaves, stack.element.leaves(rows), at, per_row=stack.depth.per_row, lender=stack.lender, rows=rows
    )
    element = stack.element.stacked() if stack.depth.per_row else stack.element
    return [wrap_list(popped), element.built(leaves)]


def _with_the_leaves_of_rows(stack: Stack, rows: int) -> Stack:
    """Return the stack, repeated for each row only if its elements have more leaves then."""
    wider = stack.element.stacked()
    if len(wider.leaves(rows)) == len(stack.element.leaves(rows)):
        return stack
    was = StackForm(stack.dtype, stack.capacity, stack.element, stack.depth.per_row, None)
    _, *leaves = was.widened([stack.depth.tensor(), *stack.leaves], replace(was, element=wider), rows, ())
    return replace(stack, element=wider, leaves=tuple(leaves))


def _read(
    dense: Sequence[tf.Tensor],
    leaves: Sequence[Leaf],
    at: tf.Tensor,
    *,
    per_row: bool,
    lender: tf.Tensor | None,
    rows: int,
) -> list[tf.Tensor]:
    """Return the element at an index of each leaf; of rows that differ in depth, each row its own."""
    if per_row and lender is not None:
        at = tf.gather(at, lender)
    made = []
    for tensor, leaf in zip(dense, leaves, strict=True):
        if per_row:
            made.append(_read_rows(tensor, leaf, at, tf.range(rows) if lender is None else lender))
        else:
            element = tf.gather(tensor, at)
            is_own = lender is None or leaf.axis is None
            made.append(element if is_own else tf.gather(element, lender, axis=leaf.axis))
    return made


def _read_rows(tensor: tf.Tensor, leaf: Leaf, at: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    """Read at each row's own index. Shapes: tensor [capacity, *leaf], at [rows], row [rows]."""
    if leaf.axis is None:
        gathered = tf.gather(tensor, at)
        return tf.transpose(gathered, [*range(1, leaf.level + 1), 0, *range(leaf.level + 1, gathered.shape.rank)])
    if leaf.axis == 0:
        return tf.gather_nd(tensor, tf.stack([at, row], axis=1))
    # Every index between the stack's own dimension and the rows, so that what is read comes out in its place.
    between = [tf.range(tf.shape(tensor)[dim]) for dim in range(1, leaf.axis + 1)]
    *places, number = tf.meshgrid(*between, tf.range(tf.shape(at)[0]), indexing="ij")
    return tf.gather_nd(tensor, tf.stack([tf.gather(at, number), *places, tf.gather(row, number)], axis=-1))


def added(stacks: Sequence[Stack], rows: int) -> Stack:
    """Return the sum of stacks of one depth, element by element."""
    total, form = stacks[0], form_of(wrap_list(stacks[0]))
    for other in stacks[1:]:
        form = form.joined(form_of(wrap_list(other)))
    assert isinstance(form, StackForm), "stacks join to one"
    if form.element is None:
        return total
    terms = [flat(wrap_list(stack), _without_constants(form), rows) for stack in stacks]
    specs = _without_constants(form).leaves(rows)
    sums = [parts[0] if leaf.is_depth else tf.add_n(list(parts)) for leaf, *parts in zip(specs, *terms, strict=True)]
    made: Stack = list_content(_without_constants(form).built(sums))
    return replace(made, depth=total.depth if not form.per_row_depth or total.depth.per_row else made.depth)


def zeroed(stack: Stack, rows: int) -> Stack:
    """Return a stack of zeros of the same depth."""
    if stack.element is None:
        return replace(stack, origin=None)
    form = form_of(wrap_list(stack))
    assert isinstance(form, StackForm), "a stack has its form"
    form = _without_constants(form)
    leaves = [
        tensor if leaf.is_depth else tf.zeros_like(tensor)
        for leaf, tensor in zip(form.leaves(rows), flat(wrap_list(stack), form, rows), strict=True)
    ]
    made: Stack = list_content(form.built(leaves))
    return replace(made, depth=stack.depth)


def _without_constants(form: StackForm) -> StackForm:
    if isinstance(form.element, ConstantForm):
        return replace(form, element=form.element.as_tensor())
    if isinstance(form.element, StackForm):
        return replace(form, element=_without_constants(form.element))
    return form


CONVERTERS: dict[str, Converter] = {"EmptyTensorList": _empty, "TensorListPopBack": _pop, "TensorListPushBack": _push}

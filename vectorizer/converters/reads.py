"""What a loop reads by its counter: the elements of a sequence, one in each step.

When a batch shrinks to the rows that are still in a loop, whatever the loop reads has to be cut out of the batch with
them, all steps of it. What is read as ``x[t]`` only, ``t`` the same for all rows, stays whole instead: a step takes the
rows that are left of one element.

Then nothing needs ``x`` but the elements that are read. A product with a shared matrix, or a shared bias, that made
``x`` of another sequence step by step is left to the loop, which does it for the rows in it alone: padding, half of a
batch of sequences of 1 to 64 steps, is not computed at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from vectorizer._pfor import converted, differing, list_content, wrap
from vectorizer.converters.constants import folded_constant
from vectorizer.converters.contents import Content
from vectorizer.converters.trips import Trips, passed, writes_of

__all__ = ["Read", "lists_kept_whole", "reads_of"]

#: What may happen to a list that stays whole: its elements are read and written row by row.
_OF_ELEMENTS = frozenset({"TensorListElementShape", "TensorListGetItem", "TensorListLength"})
_SLICE_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")


@dataclass(frozen=True, slots=True)
class Read:
    """One op of a loop's body that takes an element by a counter."""

    #: Its result in the body.
    output: Any
    #: The loop variables that it reads, and by which.
    sequence: int
    counter: int
    #: Shapes: [rows, n, *s].
    source: tf.Tensor
    #: What makes the element of ``sequence`` of one of ``source``.
    steps: tuple[Callable[[tf.Tensor], tf.Tensor], ...]

    def element(self, at: tf.Tensor, places: tf.Tensor | None) -> Any:
        """Return element ``at`` of the rows at ``places``, None for all of them. Shapes: at [], places [n]."""
        if places is None:
            value = tf.gather(self.source, at, axis=1)
        else:
            value = tf.gather_nd(self.source, tf.stack([tf.cast(places, at.dtype), tf.fill(places.shape, at)], axis=1))
        for step in self.steps:
            value = step(value)
        return wrap(value, stacked=True)


def reads_of(pfor_input: Any, cond: Any, body: Any, trips: Trips | None, *, among: Collection[int]) -> list[Read]:
    """Return how a loop reads those of its inputs ``among`` that it reads by a counter and not otherwise."""
    reads: list[Read] = []
    for index in among if trips is not None else ():
        value = pfor_input.inputs[index]
        is_tensor = list_content(value) is None and not differing(value)
        if not value.is_stacked or not is_tensor or list(_users(cond.inputs[index])):
            continue
        counters = [(op, _counter(op, body, trips)) for op in _users(body.inputs[index])]  # type: ignore[arg-type]
        if not counters or any(counter is None for _, counter in counters):
            continue
        # What is read twice is made once.
        source, steps = _source(pfor_input, index) if len(counters) == 1 else (value.t, ())
        if source.shape.is_fully_defined():
            reads += [
                Read(op.outputs[0], index, counter, source, steps) for op, counter in counters if counter is not None
            ]
    return reads


def lists_kept_whole(cond: Any, body: Any, values: Sequence[Any], *, among: Collection[int]) -> frozenset[int]:
    """Return those lists ``among`` a loop's variables of which nothing is asked but elements, row by row."""
    whole = set()
    for index in among:
        content = list_content(values[index])
        if not isinstance(content, Content) or list(_users(cond.inputs[index])):
            continue
        if writes_of(body, index, allowed=_OF_ELEMENTS) is not None:
            whole.add(index)
    return frozenset(whole)


def _users(tensor: Any) -> Iterator[Any]:
    """Yield the ops that use a tensor, beyond those that only hand it on."""
    for op in tensor.consumers():
        if op.type == "Identity":
            yield from _users(op.outputs[0])
        else:
            yield op


def _counter(op: Any, body: Any, trips: Trips) -> int | None:
    """Return by which counter an op takes one element of the first dimension; None if it does not."""
    if op.type == "GatherV2" and not op.get_attr("batch_dims"):
        axis, at = folded_constant(op.inputs[2]), op.inputs[1]
        if axis is None or int(axis) != 0:
            return None
    elif op.type == "StridedSlice" and op.get_attr("shrink_axis_mask") == 1:
        begin = passed(op.inputs[1]).op
        if begin.type != "Pack" or len(begin.inputs) != 1 or any(op.get_attr(mask) for mask in _SLICE_MASKS):
            return None
        at = begin.inputs[0]
    else:
        return None
    for counter, (start, _) in trips.counters.items():
        if start >= 0 and passed(at) is body.inputs[counter]:
            return counter
    return None


def _source(pfor_input: Any, index: int) -> tuple[tf.Tensor, tuple[Callable[[tf.Tensor], tf.Tensor], ...]]:
    """Return what a loop's input was made of element by element, and how an element is made of one of it."""
    tensor, user = pfor_input.op.inputs[index], pfor_input.op
    source = pfor_input.inputs[index].t
    steps: list[Callable[[tf.Tensor], tf.Tensor]] = []
    while True:
        made = passed(tensor)
        outputs = getattr(made.graph, "outputs", ())
        if list(_users(made)) != [user] or any(passed(output) is made for output in outputs):
            break
        found = _elementwise(pfor_input, made)
        if found is None:
            break
        tensor, step = found
        user, source = made.op, converted(pfor_input, tensor).t
        steps.append(step)
    return source, tuple(reversed(steps))


def _elementwise(pfor_input: Any, tensor: Any) -> tuple[Any, Callable[[tf.Tensor], tf.Tensor]] | None:
    """Return what a sequence was made of, and how, if each of its elements was made in the same way."""
    op, shape = tensor.op, tensor.shape
    if shape.rank != 2 or op.type not in ("Add", "AddV2", "BiasAdd", "MatMul"):
        return None
    a, b = op.inputs
    if op.type in ("Add", "AddV2") and not converted(pfor_input, a).is_stacked:
        a, b = b, a
    shared = converted(pfor_input, b)
    if not converted(pfor_input, a).is_stacked or shared.is_stacked or a.shape.rank != 2:
        return None
    if op.type == "MatMul":
        if op.get_attr("transpose_a"):
            return None
        return a, lambda value: tf.matmul(value, shared.t, transpose_b=op.get_attr("transpose_b"))
    if shared.t.shape.rank != 1 or shared.t.shape[0] != a.shape[1] or a.shape.as_list()[1] is None:
        return None
    return a, lambda value: tf.nn.bias_add(value, shared.t)

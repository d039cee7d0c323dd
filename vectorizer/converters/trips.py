"""How often a loop runs, read off its condition: a bound on what is written to a list that grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vectorizer._pfor import called_graph, list_content
from vectorizer.converters.bounds import upper_bound
from vectorizer.converters.constants import folded_constant

__all__ = ["Trips", "passed", "pushes_of", "same", "trips_of", "writes_of"]

_ADDS = frozenset({"Add", "AddV2"})
#: Comparison -> (whether its operands change places to make it a "less", whether equality counts).
_LESS = {"Less": (False, False), "LessEqual": (False, True), "Greater": (True, False), "GreaterEqual": (True, True)}


@dataclass(frozen=True, slots=True)
class Trips:
    """The most steps that a loop takes, and the values of its counters."""

    most: int
    #: It always takes that many.
    is_exact: bool
    #: Loop variable -> (its first value, what a step adds).
    counters: dict[int, tuple[int, int]]

    def last(self, variable: int) -> int:
        """Return the largest value that a counter has after the loop."""
        start, step = self.counters[variable]
        return start + self.most * step

    def highest(self, variable: int) -> int:
        """Return the largest value that a counter has within the body."""
        start, step = self.counters[variable]
        return start + max(self.most - 1, 0) * step


def passed(tensor: Any) -> Any:
    """Return what an Identity hands on."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _position(tensor: Any, inputs: Any) -> int | None:
    source = passed(tensor)
    return next((index for index, given in enumerate(inputs) if given is source), None)


def same(body: Any, index: int) -> bool:
    """Return True if the body hands a loop variable on as it is."""
    return passed(body.outputs[index]) is body.inputs[index]


def trips_of(op: Any, cond: Any, body: Any, inputs: Sequence[Any]) -> Trips | None:
    """Return how often a While op runs its body; None if no counter bounds it.

    ``inputs`` are the op's, converted: they tell what a limit that differs from row to row is at most.
    """

    def constant(tensor: Any, graph: Any) -> int | None:
        value = folded_constant(passed(tensor))
        index = _position(tensor, graph.inputs)
        if value is None and index is not None and same(body, index):
            value = _constant_input(op, inputs, index)
        return None if value is None or value.ndim or value.dtype.kind not in "iu" else int(value)

    def limit(tensor: Any) -> tuple[int, bool] | None:
        """Return what a limit is at most, and whether it is that for all."""
        known = constant(tensor, cond)
        if known is not None:
            return known, True
        index = _position(tensor, cond.inputs)
        if index is None or not same(body, index) or not inputs[index].t.dtype.is_integer:
            return None
        most = upper_bound(inputs[index].t)
        return None if most is None else (most, False)

    counters = {}
    for index, made in enumerate(body.outputs):
        adds, start = passed(made), _constant_input(op, inputs, index)
        if adds.op.type not in _ADDS or start is None or start.ndim or start.dtype.kind not in "iu":
            continue
        for one, other in (adds.op.inputs, reversed(adds.op.inputs)):
            step = constant(other, body)
            if passed(one) is body.inputs[index] and step is not None and step > 0:
                counters[index] = (int(start), step)
    bounds: list[int] = []
    is_exact = _collect(cond.outputs[0], cond, counters, limit, bounds)
    bounds.extend(_bounds_of_reads(body, counters, inputs))
    return Trips(min(bounds), is_exact, counters) if bounds else None


def _constant_input(op: Any, inputs: Sequence[Any], index: int) -> Any:
    known = folded_constant(passed(op.inputs[index]))
    if known is None and not inputs[index].is_stacked:
        known = folded_constant(passed(inputs[index].t))
    return known


def _bounds_of_reads(body: Any, counters: dict[int, tuple[int, int]], inputs: Sequence[Any]) -> Iterator[int]:
    """Yield after how many steps a counter would have read beyond the end of something, which fails."""
    for index, (start, step) in counters.items():
        for op in _consumers(body.inputs[index]):
            size = _indexed_size(op, body, index, inputs)
            if size is not None:
                yield max(0, (size - 1 - start) // step + 1)


def _consumers(tensor: Any) -> Iterator[Any]:
    for op in tensor.consumers():
        yield op
        if op.type in ("ExpandDims", "Identity", "Pack"):
            yield from _consumers(op.outputs[0])


def _indexed_size(op: Any, body: Any, counter: int, inputs: Sequence[Any]) -> int | None:
    """Return the size of what an op of the body takes one element of, if the counter is its index."""

    def is_counter(tensor: Any) -> bool:
        return passed(tensor) is body.inputs[counter]

    if op.type in ("GatherV2", "ResourceGather") and is_counter(op.inputs[1]):
        axis = folded_constant(op.inputs[2]) if op.type == "GatherV2" else None
        if axis is None or op.get_attr("batch_dims") or op.inputs[0].shape.rank is None:
            return None
        return op.inputs[0].shape[int(axis)]  # type: ignore[no-any-return]
    if op.type == "StridedSlice":
        begin, masks = op.inputs[1].op, [op.get_attr(name) for name in ("ellipsis_mask", "new_axis_mask")]
        if begin.type != "Pack" or any(masks) or op.inputs[0].shape.rank is None:
            return None
        for dim, entry in enumerate(begin.inputs):
            if is_counter(entry) and op.get_attr("shrink_axis_mask") >> dim & 1:
                return op.inputs[0].shape[dim]  # type: ignore[no-any-return]
    if op.type in ("TensorListGetItem", "TensorListSetItem") and is_counter(op.inputs[1]):
        position = _position(op.inputs[0], body.inputs)
        content = None if position is None else list_content(inputs[position])
        grows = op.type == "TensorListSetItem" and op.get_attr("resize_if_index_out_of_bounds")
        return None if grows else getattr(content, "n", None)
    return None


def _collect(test: Any, cond: Any, counters: dict[int, tuple[int, int]], limit: Any, bounds: list[int]) -> bool:
    """Add the bounds that a condition implies; return True if they are all of it."""
    test = passed(test)
    op = test.op
    if op.type == "LogicalAnd":
        known = [_collect(part, cond, counters, limit, bounds) for part in op.inputs]
        return all(known)
    if op.type in ("If", "StatelessIf"):
        # ``a and b`` of Python: b if a, else a.
        otherwise = called_graph(op, "else_branch")
        index = _position(otherwise.outputs[0], otherwise.inputs)
        if index is not None and passed(op.inputs[index + 1]) is passed(op.inputs[0]):
            _collect(op.inputs[0], cond, counters, limit, bounds)
        return False
    if op.type not in _LESS:
        return False
    is_reversed, or_equal = _LESS[op.type]
    low, high = reversed(op.inputs) if is_reversed else op.inputs
    counter, known = _position(low, cond.inputs), limit(high)
    if counter not in counters or known is None:
        return False
    most, is_exact = known
    start, step = counters[counter]
    bounds.append(max(0, -((start - most - or_equal) // step)))
    return bool(is_exact)


def pushes_of(body: Any, index: int) -> int | None:
    """Return how often a body pushes to a list that is given to it; None if that is not seen."""
    tensor, pushes = passed(body.outputs[index]), 0
    while tensor is not body.inputs[index]:
        if tensor.op.type == "TensorListPushBack":
            pushes += 1
        elif tensor.op.type != "TensorListPopBack":
            return None
        tensor = passed(tensor.op.inputs[0])
    return pushes


def _is_kept_for_gradient(op: Any) -> bool:
    """Return True for a list's length that only its gradient asks for: to be as long as it, whatever that is."""
    return op.type == "TensorListLength" and all(
        consumer.type == "TensorListPushBack" for consumer in op.outputs[0].consumers()
    )


def writes_of(body: Any, index: int, *, allowed: frozenset[str]) -> list[Any] | None:
    """Return the writes that lead from a list given to a body to the one that it makes.

    None if anything else happens to the list on the way than ops of the types ``allowed``.
    """
    writes: list[Any] = []
    known = [body.inputs[index]]
    for tensor in known:
        for op in tensor.consumers():
            if op.type == "Identity":
                known.append(op.outputs[0])
            elif op.type == "TensorListSetItem" and op.inputs[0] is tensor:
                writes.append(op)
                known.append(op.outputs[0])
            elif op.type not in allowed and not _is_kept_for_gradient(op):
                return None
    return writes if any(passed(tensor) is passed(body.outputs[index]) for tensor in known) else None

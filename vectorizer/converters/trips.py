"""How often a loop runs, read off its condition: a bound on what is written to a list that grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vectorizer._pfor import called_graph, constant_of

__all__ = ["Trips", "passed", "same", "trips_of", "writes_of"]

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


def trips_of(op: Any, cond: Any, body: Any) -> Trips | None:
    """Return how often a While op runs its body; None if no counter bounds it."""

    def constant(tensor: Any, graph: Any) -> int | None:
        value = constant_of(passed(tensor))
        index = _position(tensor, graph.inputs)
        if value is None and index is not None and same(body, index):
            value = constant_of(passed(op.inputs[index]))
        return None if value is None or value.ndim or value.dtype.kind not in "iu" else int(value)

    counters = {}
    for index, made in enumerate(body.outputs):
        adds, start = passed(made), constant_of(passed(op.inputs[index]))
        if adds.op.type not in _ADDS or start is None or start.ndim or start.dtype.kind not in "iu":
            continue
        for one, other in (adds.op.inputs, reversed(adds.op.inputs)):
            step = constant(other, body)
            if passed(one) is body.inputs[index] and step is not None and step > 0:
                counters[index] = (int(start), step)
    bounds: list[int] = []
    is_exact = _collect(cond.outputs[0], cond, counters, constant, bounds)
    return Trips(min(bounds), is_exact, counters) if bounds else None


def _collect(test: Any, cond: Any, counters: dict[int, tuple[int, int]], constant: Any, bounds: list[int]) -> bool:
    """Add the bounds that a condition implies; return True if they are all of it."""
    test = passed(test)
    op = test.op
    if op.type == "LogicalAnd":
        known = [_collect(part, cond, counters, constant, bounds) for part in op.inputs]
        return all(known)
    if op.type in ("If", "StatelessIf"):
        # ``a and b`` of Python: b if a, else a.
        otherwise = called_graph(op, "else_branch")
        index = _position(otherwise.outputs[0], otherwise.inputs)
        if index is not None and passed(op.inputs[index + 1]) is passed(op.inputs[0]):
            _collect(op.inputs[0], cond, counters, constant, bounds)
        return False
    if op.type not in _LESS:
        return False
    is_reversed, or_equal = _LESS[op.type]
    low, high = reversed(op.inputs) if is_reversed else op.inputs
    counter, limit = _position(low, cond.inputs), constant(high, cond)
    if counter not in counters or limit is None:
        return False
    start, step = counters[counter]
    bounds.append(max(0, -((start - limit - or_equal) // step)))
    return True


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
            elif op.type not in allowed:
                return None
    return writes if any(passed(tensor) is passed(body.outputs[index]) for tensor in known) else None

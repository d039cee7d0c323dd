"""How many elements of a derivative may be computed side by side, so that memory has a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import called_graphs
from vectorizer.effects import walk_ops

__all__ = ["default_parallel", "pullback_bytes"]

#: What the elements that are computed at once may take together, bytes. A quarter of a gigabyte holds 50,000 elements
#: of a 20-layer MLP of 32 units, and 8,800 of an LSTM of 32 units over 8 steps.
_BUDGET_BYTES = 2**28
#: Their outputs are their inputs' memory, or none that grows with the elements.
_FREE = frozenset(
    {
        *("Const", "EnsureShape", "ExpandDims", "Identity", "NoOp", "Placeholder", "ReadVariableOp", "Reshape"),
        *("Shape", "Squeeze", "StopGradient"),
    }
)


def pullback_bytes(graph: Any, cotangents: Sequence[tf.Tensor]) -> int:
    """Return at most how many bytes one pullback of one example writes: what its cotangents reach and its results need.

    TensorFlow also makes the gradient by the other operand of each product, which nothing reads and nobody computes.
    The sum over all ops: less is alive at any time, as TensorFlow frees what has been used. A loop's body counts once.
    """
    reached = _found(cotangents, lambda tensor: tensor.consumers(), lambda op: op.outputs)
    needed = _found(graph.outputs, lambda tensor: [tensor.op], lambda op: op.inputs)
    computed = [op for name, op in reached.items() if name in needed]
    inside = [inner for op in computed for called in called_graphs(op) for inner in walk_ops(called)]
    return max(1, _bytes(cotangents) + sum(_bytes(op.outputs) for op in (*computed, *inside) if op.type not in _FREE))


def default_parallel(bytes_per_element: int) -> int:
    """Return the default of ``max_parallel``: rows times elements."""
    return max(1, _BUDGET_BYTES // bytes_per_element)


def _found(
    tensors: Iterable[tf.Tensor],
    ops_of: Callable[[tf.Tensor], Iterable[Any]],
    tensors_of: Callable[[Any], Iterable[tf.Tensor]],
) -> dict[str, Any]:
    """Go on from tensors to ops, and from these to tensors; return the ops by name."""
    found: dict[str, Any] = {}
    waiting = list(tensors)
    while waiting:
        for op in ops_of(waiting.pop()):
            if op.name not in found:
                found[op.name] = op
                waiting.extend(tensors_of(op))
    return found


def _bytes(tensors: Iterable[tf.Tensor]) -> int:
    return sum(
        tensor.shape.num_elements() * max(1, tensor.dtype.size) for tensor in tensors if tensor.shape.is_fully_defined()
    )

"""How many elements of a derivative may be computed side by side, so that memory has a bound."""

from __future__ import annotations

from typing import Any

from vectorizer.effects import walk_ops

__all__ = ["default_parallel", "pullback_bytes"]

#: What the elements that are computed at once may take together, bytes. A quarter of a gigabyte holds 32,000 elements
#: of a 20-layer MLP of 32 units, and 4 of MobileNetV2.
_BUDGET_BYTES = 2**28
#: Their outputs are their inputs' memory, or none that grows with the elements.
_FREE = frozenset({"Const", "Identity", "NoOp", "Placeholder", "ReadVariableOp", "Reshape", "Shape", "StopGradient"})


def pullback_bytes(function_graph: Any, pullback_graph: Any) -> int:
    """Return at most how many bytes one pullback of one example writes, beyond the forward pass.

    The sum over all ops: less is alive at any time, as TensorFlow frees what has been used. A loop's body counts once.
    """
    return max(1, _written_bytes(pullback_graph) - _written_bytes(function_graph))


def default_parallel(bytes_per_element: int) -> int:
    """Return the default of ``max_parallel``: rows times elements."""
    return max(1, _BUDGET_BYTES // bytes_per_element)


def _written_bytes(graph: Any) -> int:
    return sum(
        tensor.shape.num_elements() * max(1, tensor.dtype.size)
        for op in walk_ops(graph)
        if op.type not in _FREE
        for tensor in op.outputs
        if tensor.shape.is_fully_defined()
    )

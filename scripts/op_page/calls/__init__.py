"""Valid operands of the ops that a generic call does not fit, one file for each family of ops."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.op_page.call import Call, generic_call
from scripts.op_page.calls import arithmetic, arrays, functions, images, neural, quantized, sparse, strings

__all__ = ["probe_calls"]

_PARTS = (arithmetic, arrays, functions, images, neural, quantized, sparse, strings)


def probe_calls(op: str) -> Iterator[tuple[str, Call]]:
    """Yield the calls that show what becomes of ``op``, each with what is special about it; first the usual one."""
    makers = [part.CALLS[op] for part in _PARTS if op in part.CALLS]
    assert len(makers) <= 1, f"{op} has operands in two files"
    yield "", makers[0](op) if makers else generic_call(op)
    for part in _PARTS:
        for name, make in part.VARIANTS.get(op, {}).items():
            yield name, make(op)

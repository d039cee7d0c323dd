"""Ops that exist to raise: no output need depend on them, and they run all the same.

pfor converts what outputs depend on, and so would drop them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["CHECKS", "checks_in"]

CHECKS = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2"})

#: Whether a finished graph has any.
_known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def checks_in(operations: Sequence[Any], called_graphs: Callable[[Any], Sequence[Any]]) -> list[Any]:
    """Return the ops that exist to raise, and those that call a function with such an op in it.

    ``called_graphs`` gives the graphs of the functions that an op runs.
    """

    def has_checks(graph: Any) -> bool:
        if graph not in _known:
            _known[graph] = bool(checks_in(graph.get_operations(), called_graphs))
        return _known[graph]

    return [op for op in operations if op.type in CHECKS or any(map(has_checks, called_graphs(op)))]

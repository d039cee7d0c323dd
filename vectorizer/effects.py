"""Ops that do something besides computing their outputs.

pfor drops what is not on the path to an output and runs some effects once for the whole batch, for row 0 only. A
function with an effect is refused by name, instead of being served with the effect lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from vectorizer._pfor import called_graphs, is_stateful
from vectorizer.checks import CHECKS
from vectorizer.errors import SideEffectError
from vectorizer.source import source_line

__all__ = ["RANDOM_OPS", "judgement", "refuse_effects", "walk_ops"]

#: Stateful by TensorFlow's registration, but their only effect is to be in the graph or to call what is judged itself.
_HARMLESS = frozenset(
    {
        "Case",
        "If",
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "NoOp",
        "PartitionedCall",
        "Placeholder",
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "StatefulPartitionedCall",
        "TensorListReserve",
        "VarHandleOp",
        "StatelessRandomGetAlg",
        "VariableShape",
        "While",
    }
)
#: They draw from a state that is not seen. ``seeds.py`` makes them draw from an input, unless that is refused.
RANDOM_OPS = frozenset(
    {
        "Multinomial",
        "RandomGamma",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    }
)
_PYTHON = "Python can't run inside a served graph; write it with TensorFlow ops"
_GENERATOR = "a tf.random.Generator writes its state; draw by tf.random.normal and its kind"
_RANDOM = "draw by an op of tf.random.stateless_*, with a seed that is an input"
#: By how the op type begins, the first that fits.
_HINTS = {
    "Print": "remove the print",
    "EagerPyFunc": _PYTHON,
    "PyFunc": _PYTHON,
    "Rng": _GENERATOR,
    "ParameterizedTruncatedNormal": _RANDOM,
    "Multinomial": _RANDOM,
    "Random": _RANDOM,
    "TruncatedNormal": _RANDOM,
}


def judgement(op_type: str) -> str:
    """Return ``harmless``, ``check`` (it judges every row), ``random`` (it needs a seed) or ``refused``.

    For an op that TensorFlow registers as stateful.
    """
    if op_type in CHECKS:
        return "check"
    if op_type in RANDOM_OPS:
        return "random"
    return "harmless" if op_type in _HARMLESS else "refused"


def refuse_effects(graph: Any, function_name: str, *, where: Callable[[Any], str] = source_line) -> None:
    """Errors: SideEffectError naming each op with an effect, its place and what to do."""
    found: dict[tuple[str, str], None] = {}
    for op in walk_ops(graph):
        if not is_stateful(op) and op.type != "PyFuncStateless":
            continue
        if judgement(op.type) in ("random", "refused") and not _is_pure_program(op):
            found[op.type, where(op)] = None
    if found:
        places = "; ".join(f"{op} ({place}): {_hint(op)}" for op, place in found)
        raise SideEffectError(f"{function_name} has effects that can't be served by the batch: {places}")


def _is_pure_program(op: Any) -> bool:
    """Return whether an op is a compiled program that computes and does nothing else.

    One with effects is given tokens that keep them in order, and one that calls TensorFlow back names what it calls.
    """
    return op.type == "XlaCallModule" and not (op.get_attr("has_token_input_output") or op.get_attr("function_list"))


def _hint(op_type: str) -> str:
    hints = (hint for start, hint in _HINTS.items() if op_type.startswith(start))
    return next(hints, "a batch would run it once, not once for each row")


def walk_ops(graph: Any) -> Iterator[Any]:
    """Yield the ops of a traced graph and of every function that they call."""
    seen: set[int] = set()

    def visit(current: Any) -> Iterator[Any]:
        if id(current) in seen:
            return
        seen.add(id(current))
        for op in current.get_operations():
            yield op
            for called in called_graphs(op):
                yield from visit(called)

    yield from visit(graph)

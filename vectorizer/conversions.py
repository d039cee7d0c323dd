"""What happened to each op of a function: the record that a conversion leaves, and the loops that it hides.

Every run of a converter is noted with the ops that were made in it. A converter that is a loop over the rows shows
afterwards: each loop of the new graph belongs to the innermost run that made it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vectorizer.loops import LOOP_OPS

__all__ = ["CALLED_BY", "CALLING_OPS", "Conversion", "ConversionLog", "OpKey", "op_key"]

#: Ops that call functions, and the attributes that name them; a Case has a list of them.
CALLED_BY = {
    "If": ("then_branch", "else_branch"),
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "StatelessIf": ("then_branch", "else_branch"),
    "StatelessWhile": ("cond", "body"),
    "While": ("cond", "body"),
}
#: Ops whose conversion is that of the functions they call: loops in them are the user's own.
CALLING_OPS = frozenset({"Case", "StatelessCase", *CALLED_BY})

#: Identifies an op of a traced graph: TensorFlow may hand out several objects for one op.
OpKey = tuple[int, str]


def op_key(op: Any) -> OpKey:
    """Return what identifies ``op``."""
    return (id(op.graph), op.name)


@dataclass(slots=True)
class Conversion:
    """One run of a converter: the ops ``[first, last)`` of ``graph`` were made for ``op``."""

    op: Any
    graph: Any
    #: Which inputs of ``op`` differ from row to row.
    stacked: tuple[bool, ...]
    first: int
    last: int
    looped_because: str | None = None


@dataclass
class ConversionLog:
    """What happened to each op: filled by ``convert_rows``."""

    conversions: list[Conversion] = field(default_factory=list)
    #: False if sizes in the graph are known only when it runs, so that XLA can't compile it.
    is_for_xla: bool = True

    def converted(self) -> dict[OpKey, Any]:
        """Ops that went through a converter. A loop's body may be converted more than once; it counts once."""
        return {op_key(entry.op): entry.op for entry in self.conversions}

    def looped(self) -> dict[OpKey, tuple[Any, str]]:
        """Ops that run once for each row, with the reason."""
        found = {
            op_key(entry.op): (entry.op, entry.looped_because) for entry in self.conversions if entry.looped_because
        }
        return {**self._hidden_loops(), **found}

    def _hidden_loops(self) -> dict[OpKey, tuple[Any, str]]:
        by_graph: dict[int, list[Conversion]] = {}
        for entry in self.conversions:
            by_graph.setdefault(id(entry.graph), []).append(entry)
        hidden = {}
        for entries in by_graph.values():
            operations = entries[0].graph.get_operations()
            for index, made in enumerate(operations):
                if made.type not in LOOP_OPS:
                    continue
                around = [entry for entry in entries if entry.first <= index < entry.last]
                if not around:
                    continue
                maker = min(around, key=lambda entry: entry.last - entry.first)
                if maker.op.type not in CALLING_OPS:
                    hidden[op_key(maker.op)] = (maker.op, "its converter is a loop over the rows")
        return hidden

"""The certificate's account of the ops: grouped by type and treatment, in the order of the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from vectorizer.certificate import OpClass, OpRecord
from vectorizer.conversions import ConversionLog, OpKey, op_key
from vectorizer.effects import walk_ops
from vectorizer.trace import ExampleFunction

__all__ = ["MOST_PLACES", "merge_log", "op_records"]

#: Places that a record or a message names.
MOST_PLACES = 5


def merge_log(kinds: dict[OpKey, tuple[Any, str | None]], log: ConversionLog) -> None:
    """Add what one bucket's conversion did to what all did so far: an op that is looped in one is looped."""
    for key, op in log.converted().items():
        kinds.setdefault(key, (op, None))
    kinds.update(log.looped())


def op_records(function: ExampleFunction, kinds: Mapping[OpKey, tuple[Any, str | None]]) -> Iterator[OpRecord]:
    """Group the ops of the function by type and treatment, in the order of the graph."""
    counts: Counter[tuple[str, OpClass, str | None]] = Counter()
    places: dict[tuple[str, OpClass, str | None], dict[str, None]] = {}

    def add(op: Any, kind: OpClass, reason: str | None) -> None:
        key = (op.type, kind, reason)
        counts[key] += 1
        places.setdefault(key, {})[function.where(op)] = None

    converted: set[tuple[str, str, str]] = set()
    for op, reason in kinds.values():
        signature = (op.type, op.name, function.where(op))
        if signature in converted:
            continue  # the same op in the body of another length
        converted.add(signature)
        add(op, OpClass.LOOPED if reason else OpClass.VECTORIZED, reason)
    for op in walk_ops(function.graph):
        if op.type in ("Placeholder", "NoOp") or op_key(op) in kinds:
            continue
        if (op.type, op.name, function.where(op)) not in converted:
            add(op, OpClass.INVARIANT, None)
    for (op_type, kind, reason), count in counts.items():
        yield OpRecord(
            op=op_type,
            kind=kind,
            count=count,
            where=tuple(list(places[op_type, kind, reason])[:MOST_PLACES]),
            reason=reason,
        )

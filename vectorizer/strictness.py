"""Strict mode: what would run once for each row is refused, unless it was allowed by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vectorizer.conversions import OpKey
from vectorizer.errors import LoopedOpError
from vectorizer.op_records import MOST_PLACES, refused_records
from vectorizer.trace import ExampleFunction

__all__ = ["refuse_looped"]


def refuse_looped(
    function: ExampleFunction, looped: Mapping[OpKey, tuple[Any, str]], allow_looped: Collection[str]
) -> None:
    """Errors: LoopedOpError naming each op type that is looped and was not allowed, its places and the way out."""
    refused = [(op, reason) for op, reason in looped.values() if op.type not in allow_looped]
    if not refused:
        return
    records = refused_records(function, refused)
    places: dict[str, dict[str, None]] = {}
    for op, _ in refused:
        places.setdefault(op.type, {})[function.where(op)] = None
    lines = []
    for op_type, known in places.items():
        record = next(record for record in records if record.op == op_type)
        rest = len(known) - MOST_PLACES
        shown = ", ".join(list(known)[:MOST_PLACES]) + (f" and {rest} more places" if rest > 0 else "")
        lines.append(f"op {op_type} ({shown}) would run once for each row: {record.reason}\n  instead: {record.fix}")
    raise LoopedOpError(
        f"{function.name}: " + "\n".join(lines) + f"\nOr run {'it' if len(places) == 1 else 'them'} once for each row, "
        f"knowingly: allow_looped={sorted(places)}",
        ops={op_type: tuple(known) for op_type, known in places.items()},
        records=records,
    )

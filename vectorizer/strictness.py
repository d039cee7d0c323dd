"""Strict mode: what would run once for each row is refused, unless it was allowed by name."""

from __future__ import annotations

from collections.abc import Collection

from vectorizer.conversions import ConversionLog
from vectorizer.errors import LoopedOpError
from vectorizer.op_records import MOST_PLACES
from vectorizer.trace import ExampleFunction

__all__ = ["refuse_looped"]


def refuse_looped(function: ExampleFunction, log: ConversionLog, allow_looped: Collection[str]) -> None:
    """Errors: LoopedOpError naming each op type that is looped and was not allowed, its places and the way out."""
    refused: dict[str, dict[str, str]] = {}
    for op, reason in log.looped().values():
        if op.type not in allow_looped:
            refused.setdefault(op.type, {})[function.where(op)] = reason
    if not refused:
        return
    lines = [
        f"op {op_type} ({', '.join(list(places)[:MOST_PLACES])}) would run once for each row: "
        f"{next(iter(places.values()))}"
        for op_type, places in refused.items()
    ]
    raise LoopedOpError(
        f"{function.name}: {'; '.join(lines)}. Rewrite it with ops that have a batched form, or allow it: "
        f"allow_looped={sorted(refused)}",
        ops={op_type: tuple(places) for op_type, places in refused.items()},
    )

"""The allow-list: which family each op of TensorFlow is in, as ``ops.toml`` has it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

__all__ = ["Family", "Judgement", "op_families"]

_FILE = Path(__file__).with_name("ops.toml")


class Judgement(StrEnum):
    """What becomes of an op: see the head of ``ops.toml``."""

    ALLOWED = "allowed"
    PLACED = "placed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Ops that are judged alike. ``reason`` says what they do, ``next_step`` what to do where they are refused.

    ``writes``: they change a variable or a table.
    """

    judgement: Judgement
    name: str
    reason: str
    next_step: str = ""
    writes: bool = False


@cache
def op_families() -> Mapping[str, Family]:
    """Return the family of each op, by its type. Errors: ValueError if an op is in two."""
    families: dict[str, Family] = {}
    for judgement, members in tomllib.loads(_FILE.read_text(encoding="utf-8")).items():
        for name, entry in members.items():
            ops = entry.pop("ops").split()
            family = Family(judgement=Judgement(judgement), name=name, **entry)
            for op in ops:
                if op in families:
                    raise ValueError(f"{_FILE.name}: {op} is in {families[op].name!r} and in {name!r}")
                families[op] = family
    return families

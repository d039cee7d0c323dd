"""What a check found: fine, something to think about, or something that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Level", "advice", "fine", "wrong"]


class Level(StrEnum):
    """How bad it is. Only what is wrong makes ``rowwise doctor`` end with 1."""

    FINE = "fine"
    ADVICE = "advice"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``what`` is there, ``why`` that matters, and what is ``to_do``; the last two are empty where all is fine."""

    check: str
    level: Level
    what: str
    why: str = ""
    to_do: str = ""

    def to_json(self) -> dict[str, str]:
        """Return plain JSON types."""
        told = {"check": self.check, "level": str(self.level), "what": self.what}
        return told if self.level is Level.FINE else {**told, "why": self.why, "to_do": self.to_do}


def fine(check: str, what: str) -> Finding:
    """Return that a check found nothing."""
    return Finding(check=check, level=Level.FINE, what=what)


def advice(check: str, what: str, *, why: str, to_do: str) -> Finding:
    """Return something that works, and could be better."""
    return Finding(check=check, level=Level.ADVICE, what=what, why=why, to_do=to_do)


def wrong(check: str, what: str, *, why: str, to_do: str) -> Finding:
    """Return something that will fail."""
    return Finding(check=check, level=Level.WRONG, what=what, why=why, to_do=to_do)

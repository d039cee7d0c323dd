"""An attack: what it is called, what it does to a server, and what must not come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loadtests.attack.target import Target

__all__ = ["Case", "Harm", "attack", "cases"]


class Harm(AssertionError):
    """The attack got what it wanted, or broke something."""


@dataclass(frozen=True, slots=True)
class Case:
    """``run`` attacks, and returns how it was met in a few words. Errors: Harm; AssertionError."""

    area: str
    name: str
    run: Callable[[Target], str]


_CASES: list[Case] = []


def attack(area: str, name: str) -> Callable[[Callable[[Target], str]], Callable[[Target], str]]:
    """Add a function to the attacks."""

    def add(function: Callable[[Target], str]) -> Callable[[Target], str]:
        _CASES.append(Case(area, name, function))
        return function

    return add


def cases() -> tuple[Case, ...]:
    """Return all attacks, by area."""
    return tuple(_CASES)

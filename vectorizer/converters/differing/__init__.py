"""Ops on results of differing length (``vectorizer.differing``), one file for each family.

``differing_sources()`` make such a value of operands that have one shape in all rows; ``differing_converters()`` take
such a value as an operand. An op that is not among these refuses it by name.
"""

from __future__ import annotations

from vectorizer._pfor import Converter
from vectorizer.converters.differing import (
    elementwise,
    gathers,
    groups,
    joins,
    reductions,
    selections,
    shapes,
    sizes,
    slices,
    strings,
)

__all__ = ["differing_converters", "differing_sources"]


def differing_sources() -> dict[str, Converter]:
    """Return the converters of ops whose results may differ in length, whatever they are given, by op type."""
    return {
        **gathers.SOURCES,
        **groups.SOURCES,
        **selections.SOURCES,
        **sizes.SOURCES,
        **slices.SOURCES,
        **strings.SOURCES,
    }


def differing_converters() -> dict[str, Converter]:
    """Return the converters of ops that are given a value of differing length, by op type."""
    return {
        **differing_sources(),
        **elementwise.CONVERTERS,
        **gathers.CONVERTERS,
        **joins.CONVERTERS,
        **reductions.CONVERTERS,
        **shapes.CONVERTERS,
        **sizes.CONVERTERS,
    }

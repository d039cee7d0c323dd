"""Charts as SVG, drawn here: no script, a few kilobytes, and the page's colours, light or dark, by its style sheet.

A chart has two axes and takes lines, bars, dots and rules in the order in which they are drawn. Classes say what
something is (``s1``, ``s2`` for series, ``bad``, ``target``); the style sheet of the page gives them colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Axis", "Chart", "nines"]

_HEIGHT = 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 12, 40
_N_TICKS = 5

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What an axis spans, and how: by ratio if ``is_log``. ``ticks``: where to say what; None: at round numbers."""

    title: str
    low: float
    high: float
    is_log: bool = False
    ticks: tuple[tuple[float, str], ...] | None = None

    def share(self, value: float) -> float:
        """Return where a value is, from 0 to 1, cut at the ends."""
        low, high, at = self.low, self.high, value
        if self.is_log:
            low, high, at = (math.log(max(number, 1e-12)) for number in (low, high, value))
        return min(1.0, max(0.0, (at - low) / (high - low))) if high > low else 0.5

    def marks(self) -> Sequence[tuple[float, str]]:
        """Return the ticks."""
        if self.ticks is not None:
            return self.ticks
        values = _powers(self.low, self.high) if self.is_log else _round(self.low, self.high)
        return [(value, _number(value)) for value in values]


def nines(share: float) -> float:
    """Return where a share is drawn, so that 90 %, 99 % and 99.9 % are as far from each other."""
    return -math.log10(max(1 - share, 1e-4))


class Chart:
    """One picture. ``label`` says to those who can't see it what it shows; ``width`` is in pixels of 250 in height."""

    def __init__(self, x: Axis, y: Axis, *, label: str, width: int = 520) -> None:
        self._width = width
        self._x, self._y, self._label = x, y, label
        self._parts: list[str] = []

    def line(self, points: Sequence[Point | None], css: str) -> None:
        """Draw a line; None interrupts it."""
        commands, pen = [], "M"
        for point in points:
            if point is None:
                pen = "M"
                continue
            commands.append(f"{pen}{self._at(point)}")
            pen = "L"
        self._parts.append(f'<path class="line {css}" d="{" ".join(commands)}"/>')

    def bars(self, edges: Sequence[float], values: Sequence[float], css: str, titles: Sequence[str]) -> None:
        """Draw a bar between each two edges; a title is shown under the pointer."""
        floor = _HEIGHT - _BOTTOM
        for left, right, value, title in zip(edges, edges[1:], values, titles, strict=False):
            if not value:
                continue
            x0, y0 = self._xy((left, value))
            x1, _ = self._xy((right, value))
            self._parts.append(
                f'<rect class="bar {css}" x="{x0:.1f}" y="{y0:.1f}" width="{max(0.8, x1 - x0 - 0.6):.1f}" '
                f'height="{max(0.8, floor - y0):.1f}"><title>{escape(title)}</title></rect>'
            )

    def dots(self, points: Sequence[Point], css: str, titles: Sequence[str], *, radius: float = 4) -> None:
        """Draw dots; a title is shown under the pointer."""
        for point, title in zip(points, titles, strict=True):
            x, y = self._xy(point)
            self._parts.append(
                f'<circle class="dot {css}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
                f"<title>{escape(title)}</title></circle>"
            )

    def across(self, y: float, text: str, css: str = "target") -> None:
        """Draw a rule from left to right, with its name above it."""
        _, at = self._xy((self._x.low, y))
        right = self._width - _RIGHT
        self._parts.append(
            f'<path class="rule {css}" d="M{_LEFT},{at:.1f} H{right}"/>'
            f'<text class="name {css}" x="{right - 4}" y="{max(_TOP + 9, at - 4):.1f}" text-anchor="end">'
            f"{escape(text)}</text>"
        )

    def upright(self, x: float, text: str, css: str = "target", *, row: int = 0) -> None:
        """Draw a rule from top to bottom; its name goes to the side that has room, ``row`` lines down."""
        at, _ = self._xy((x, self._y.low))
        is_left = at > self._width * 0.7
        anchor, shift = ("end", -4) if is_left else ("start", 4)
        self._parts.append(
            f'<path class="rule {css}" d="M{at:.1f},{_TOP} V{_HEIGHT - _BOTTOM}"/>'
            f'<text class="name {css}" x="{at + shift:.1f}" y="{_TOP + 10 + 13 * row}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def svg(self) -> str:
        """Return the picture."""
        return (
            f'<svg viewBox="0 0 {self._width} {_HEIGHT}" role="img" aria-label="{escape(self._label)}">'
            f"{self._grid()}{''.join(self._parts)}</svg>"
        )

    def _grid(self) -> str:
        floor, right = _HEIGHT - _BOTTOM, self._width - _RIGHT
        parts = []
        for value, text in self._y.marks():
            _, y = self._xy((self._x.low, value))
            parts.append(f'<path class="grid" d="M{_LEFT},{y:.1f} H{right}"/>')
            parts.append(
                f'<text class="tick" x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{escape(text)}</text>'
            )
        for value, text in self._x.marks():
            x, _ = self._xy((value, self._y.low))
            parts.append(f'<path class="grid" d="M{x:.1f},{_TOP} V{floor}"/>')
            parts.append(f'<text class="tick" x="{x:.1f}" y="{floor + 14}" text-anchor="middle">{escape(text)}</text>')
        parts.append(f'<path class="axis" d="M{_LEFT},{_TOP} V{floor} H{right}"/>')
        middle = (_LEFT + right) / 2
        parts.append(
            f'<text class="title" x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(self._x.title)}</text>'
        )
        parts.append(
            f'<text class="title" transform="translate(12 {(_TOP + floor) / 2}) rotate(-90)" text-anchor="middle">'
            f"{escape(self._y.title)}</text>"
        )
        return "".join(parts)

    def _xy(self, point: Point) -> Point:
        width, height = self._width - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + width * self._x.share(point[0]), _HEIGHT - _BOTTOM - height * self._y.share(point[1])

    def _at(self, point: Point) -> str:
        x, y = self._xy(point)
        return f"{x:.1f},{y:.1f}"


def _round(low: float, high: float) -> list[float]:
    """Return about five round numbers within a span."""
    if high <= low:
        return [low]
    raw = (high - low) / _N_TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, int(high / step + 1e-9) + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Return powers of ten within a span, with 2 and 5 times them where there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1,), (1, 3), (1, 2, 5)):
        found = [
            factor * 10.0**power
            for power in range(first, last + 1)
            for factor in factors
            if low <= factor * 10.0**power <= high
        ]
        if len(found) >= 3:
            return found
    return found if len(found) > 1 else [low, high]


def _number(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1e6:g}M"
    if value >= 10_000:
        return f"{value / 1e3:g}k"
    return f"{value:.3g}" if value < 1_000 else f"{value:,.0f}"

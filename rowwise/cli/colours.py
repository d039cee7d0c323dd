"""``--no-color``: colours are off where NO_COLOR is set (no-color.org), and nowhere on what is no terminal."""

from __future__ import annotations

import os

__all__ = ["FLAG", "switch_off"]

FLAG = "--no-color"


def switch_off() -> None:
    """Print without colours from now on: here, in every library that prints, and in child processes."""
    os.environ["NO_COLOR"] = "1"

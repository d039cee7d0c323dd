"""The Python blocks of the manual's page of recipes, run as a reader runs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["run_recipe"]

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "other_models.md"


def run_recipe(recipe: str, **given: Any) -> dict[str, Any]:
    """Run the block of a recipe with the names that its reader has, and return all names."""
    _, found, rest = _PAGE.read_text().partition(f"(recipe-{recipe})=\n")
    assert found, f"{_PAGE.name} has no recipe of this name: {recipe}"
    block = re.search(r"^```python\n(.*?)^```$", rest.partition("\n(recipe-")[0], re.DOTALL | re.MULTILINE)
    assert block is not None, f"the recipe {recipe} has no block"
    names = dict(given)
    exec(compile(block[1], f"{_PAGE.name}:{recipe}", "exec"), names)
    return names

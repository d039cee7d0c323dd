"""Every source file of the packages, as module name, path and syntax tree."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

__all__ = ["PACKAGES", "ROOT", "TENSORFLOW_PARTS", "report", "sources", "under"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("rowwise", "vectorizer", "models", "server", "loadtests")

#: Parts that may import TensorFlow when they are imported.
TENSORFLOW_PARTS = (
    "vectorizer",
    "models",
    "server.engine",
    "server.build",
    "server.graph_checks",
    "loadtests.baseline",
    "loadtests.race_models",
    "rowwise._trace",
)


def under(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources(*packages: str) -> list[tuple[str, Path, ast.Module]]:
    files = sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))
    return [(module_name(path), path, ast.parse(path.read_text(), str(path))) for path in files]


def report(violations: list[str]) -> str:
    return "\n" + "\n".join(violations)

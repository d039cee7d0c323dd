"""What modules and packages say of themselves: ``__all__``, sorted and true, and a docstring."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tests.source_files import PACKAGES, ROOT, report, sources


def bound_names(tree: ast.Module) -> set[str]:
    """Return what the top level of a module binds."""
    names: set[str] = set()
    for node in tree.body:
        for child in [node, *(ast.walk(node) if isinstance(node, ast.If | ast.Try | ast.With) else ())]:
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(child.name)
            elif isinstance(child, ast.Import | ast.ImportFrom):
                names.update(alias.asname or alias.name.split(".")[0] for alias in child.names)
            elif isinstance(child, ast.Assign):
                names.update(n.id for target in child.targets for n in ast.walk(target) if isinstance(n, ast.Name))
            elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                names.add(child.target.id)
    return names


def declared_all(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        bound = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and any(getattr(to, "id", "") == "__all__" for to in bound):
            value = ast.literal_eval(node.value or ast.List())
            assert isinstance(value, list)
            return value
    return None


def order(name: str) -> tuple[int, list[tuple[int, int | str]]]:
    """Constants, classes, the rest; then by name with numbers as numbers: the order that ruff's RUF022 keeps."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name)]


def test_every_module_lists_its_public_names_sorted_once_and_truly() -> None:
    violations = []
    for _, path, tree in sources(*PACKAGES):
        file, names = path.relative_to(ROOT), declared_all(tree)
        if names is None:
            if path.name != "__main__.py" and any(not isinstance(node, ast.Expr) for node in tree.body):
                violations.append(f"{file}: no __all__")
            continue
        if names != sorted(set(names), key=order):
            violations.append(f"{file}: __all__ is not sorted, or names something twice: {names}")
        bound = bound_names(tree)
        if "__getattr__" not in bound:
            violations += [f"{file}: __all__ names {name!r}, which is not there" for name in names if name not in bound]
    assert not violations, report(violations)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_what_it_is(package: str) -> None:
    violations = [
        f"{path.relative_to(ROOT)}: no docstring"
        for _, path, tree in sources(package)
        if ast.get_docstring(tree) is None
    ]
    folders = {path.parent for _, path, _ in sources(package)}
    violations += [
        f"{folder.relative_to(ROOT)}: no __init__.py"
        for folder in folders - {path.parent for _, path, _ in sources(package) if path.name == "__init__.py"}
    ]
    assert not violations, report(violations)


def test_lazily_exported_names_exist() -> None:
    lazy = [
        (module, declared_all(tree) or [])
        for module, path, tree in sources("rowwise", "server")
        if path.name == "__init__.py" and "__getattr__" in bound_names(tree)
    ]
    script = "import importlib, sys\nm = importlib.import_module(sys.argv[1])\nfor n in sys.argv[2:]: getattr(m, n)"
    for module, names in lazy:
        subprocess.run([sys.executable, "-c", script, module, *names], cwd=ROOT, check=True, timeout=100)

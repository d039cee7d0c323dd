"""What a package imports is what pyproject.toml declares for it: nothing arrives by way of something else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = {"benchmarks", "loadtests", "models", "rowwise", "scripts", "server", "tests", "vectorizer"}

#: Which extras are there when a package is used, besides the dependencies that are always there.
EXTRAS = {
    "rowwise": (),
    "vectorizer": (),
    # Imported only where a setting asks for traces or for a bucket, or where replicas are built for Ray Serve; what is
    # missing then is said.
    "server": ("ray", "s3", "tracing"),
    "models": ("models",),
    "loadtests": ("models", "loadtest", "race", "ray"),
    "benchmarks": ("models", "loadtest", "dev", "bench"),
}
#: Where what a module is of can't be looked up, as only `make bench`, `make race` or `make test-ray` installs it.
ONLY_TO_COMPARE = {
    "dynet": ["dynet38"],
    "dynet_config": ["dynet38"],
    "jax": ["jax"],
    "litserve": ["litserve"],
    "mosec": ["mosec"],
    "ray": ["ray"],
}
#: Named in strings, or used by a framework that needs them for what we ask of it.
USED_BY_NAME = {
    "httptools": "uvicorn's HTTP parser",
    "plotly": "the console's charts: a file of it is served",
    "python-multipart": "Starlette's multipart reader",
    "uvloop": "uvicorn's event loop",
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def declared(*extras: str) -> frozenset[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return frozenset(normal(re.split(r"[\[<>=!~; ]", line)[0]) for line in lines)


def imported(package: str) -> dict[str, str]:
    """Return each foreign top-level module with a place that imports it."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [node.module]
            for name in names:
                root = name.split(".")[0]
                if root not in sys.stdlib_module_names and root not in OURS:
                    found.setdefault(root, f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


@pytest.mark.parametrize("package", EXTRAS)
def test_each_package_declares_what_it_imports(package: str) -> None:
    distributions = {**ONLY_TO_COMPARE, **packages_distributions()}
    missing = [
        f"{place}: imports {module}, of {distributions.get(module)}"
        for module, place in imported(package).items()
        if not {normal(name) for name in distributions.get(module, [])} & declared(*EXTRAS[package])
    ]
    assert not missing, "\n" + "\n".join(missing)


def test_no_dependency_is_declared_that_nobody_uses() -> None:
    distributions = packages_distributions()
    used = {
        normal(name)
        for package in ("rowwise", "vectorizer", "server")
        for module in imported(package)
        for name in distributions.get(module, [])
    }
    assert declared() - used - set(USED_BY_NAME) == set()

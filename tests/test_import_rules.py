"""Who may import whom, and what importing may do: the house rules that no linter knows.

Imports are read from the syntax tree of every file, those inside functions and type-checking blocks too, and
``importlib.import_module("constant")``. What is true only at run time is in test_importing.py.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.source_files import PACKAGES, ROOT, TENSORFLOW_PARTS, report, sources, under

#: What each part may import besides the standard library and itself. The longest matching prefix rules.
#: ``server`` in a value means all of server; ``server.errors`` that module alone.
MAY_IMPORT: dict[str, set[str]] = {
    "vectorizer": {"numpy", "tensorflow"},
    "models": {"numpy", "sklearn", "tensorflow"},
    "server": {"numpy", "server"},
    "server.annotations": set(),
    "server.errors": set(),
    "server.signature": set(),
    "server.artifact": {"server.signature"},
    "server.invariant": {"server.artifact"},
    "server.spec": {"pydantic"},
    "server.settings": {"pydantic", "pydantic_settings", "server.rights"},
    "server.settings_origins": {"pydantic", "pydantic_settings", "server.settings", "server.toml_lines"},
    "server.toml_lines": set(),
    # Knows no HTTP: who is asked for what is in server.web.scopes.
    "server.rights": {"pydantic"},
    "server.metrics": {
        "prometheus_client",
        "server.errors",
        "server.quick_histogram",
        "server.request_counts",
        "server.state_metrics",
    },
    "server.quick_histogram": {"prometheus_client"},
    "server.request_counts": {"prometheus_client", "server.tally"},
    "server.state_metrics": {"prometheus_client", "server.quick_histogram"},
    "server.tally": set(),
    "server.batching": {"numpy", "server.errors"},
    "server.protocol": {
        "google.protobuf",
        "ml_dtypes",
        "msgspec",
        "numpy",
        "orjson",
        "simdjson",
        "server.errors",
        "server.signature",
    },
    "server.store": {"server.artifact", "server.errors", "server.signature", "server.spec"},
    # Only who has a bucket has its package.
    "server.shared_store": {"obstore", "server.store"},
    "server.graph_checks": {"tensorflow", "server.errors"},
    "server.engine": {
        "ml_dtypes",
        "numpy",
        "tensorflow",
        "server.artifact",
        "server.batching",
        "server.errors",
        "server.graph_checks",
        "server.invariant",
        "server.signature",
    },
    # Part of it runs before anything that is installed may be imported.
    "server.jail": set(),
    "server.build": {
        "numpy",
        "pydantic",
        "tensorflow",
        "vectorizer",
        "server.annotations",
        "server.artifact",
        "server.batching.costs",
        "server.engine",
        "server.errors",
        "server.graph_checks",
        "server.invariant",
        "server.jail",
        "server.signature",
        "server.spec",
        "server.tensorflow_notices",
        "server.thread_pools",
        "server.xla_cache",
    },
    "server.link": {
        "msgspec",
        "numpy",
        "server.artifact",
        "server.batching",
        "server.derivatives",
        "server.engine",
        "server.errors",
        "server.protocol",
        "server.signature",
        "server.store",
        "server.web",
    },
    "server.tensorflow_notices": {"tensorflow"},
    "server.app": {"numpy", "server"},
    "server.engine_process": {"server"},
    "server.http_listening": set(),
    "server.http_server": {
        "uvicorn",
        "server.accepting",
        "server.handshakes",
        "server.http_listening",
        "server.settings",
    },
    "server.accepting": set(),
    "server.handshakes": {"server.accepting", "server.tls"},
    "server.http_worker": {"server"},
    "server.logs": {"server.tensorflow_notices"},
    # The supervisor loads neither models nor HTTP; a child becomes what it is to be.
    "server.supervise": {
        "server.http_listening",
        "server.logs",
        "server.processes",
        "server.reloading",
        "server.rights",
        "server.settings",
        "server.tls",
    },
    "server.tls": {"server.settings"},
    # Ray is imported by what builds its application alone, when it does.
    "server.replica": {"pydantic", "ray", "starlette", "uvicorn", "server"},
    "server.supervise.child": {"server.engine_process", "server.http_worker", "server.supervise"},
    "server.web.tracing": {"opentelemetry", "server"},
    "server.web.http2": {"hpack", "server.web.http2"},
    "server.web.rpc": {"google.protobuf", "server"},
    "server.web": {
        "anyio",
        "fastapi",
        "httptools",
        "numpy",
        "orjson",
        "prometheus_client",
        "pydantic",
        "python_multipart",
        "starlette",
        "uvicorn",
        "server",
    },
    "rowwise": {
        "PIL",
        "httpx",
        "keras",
        "numpy",
        "orjson",
        "pydantic",
        "rich",
        "server",
        "tensorflow",
        "typer",
        "vectorizer",
    },
    # The load tests are a program of their own, which one command starts.
    "rowwise.cli.loadtest": {"loadtests", "rowwise", "typer"},
    "loadtests": {
        "fastapi",
        "gevent",
        "geventhttpclient",
        "httptools",
        "httpx",
        "litserve",
        "locust",
        "matplotlib",
        "models",
        "mosec",
        "numpy",
        "orjson",
        "prometheus_client",
        "pydantic",
        "ray",
        "rich",
        "rowwise",
        "server",
        "starlette",
        "tensorflow",
        "tritonclient",
        "typer",
        "uvicorn",
        "uvloop",
    },
}

#: The only package and the only files that may touch what TensorFlow keeps private.
PRIVATE_TENSORFLOW = ("vectorizer/_pfor/", "server/engine/_session.py", "server/graph_checks/_tensorflow.py")

#: These may inside functions; nobody else may at all.
LAZY_TENSORFLOW_PARTS = (*TENSORFLOW_PARTS, "rowwise", "server.tensorflow_notices", "loadtests")

#: The core gets clock, executor and randomness as arguments.
NOT_IN_BATCHING = {"asyncio", "datetime", "random", "secrets", "socket", "threading", "time"}

#: The only files that may read or write the process environment, each with its reason.
MAY_USE_ENVIRONMENT: dict[str, str] = {
    "models/training.py": "a model stands alone, so it asks by itself where trained weights are kept",
    "rowwise/cli/colours.py": "--no-color is NO_COLOR, for every library and child process that prints",
    "server/build/supervisor.py": "gives the builder an environment without the server's tokens",
    "server/thread_pools.py": "TensorFlow can be told of pools of threads only through its variable",
    "server/xla_cache.py": "XLA can be told where to keep executables only through its variable",
    "server/tensorflow_notices.py": "quietens TensorFlow's notices before it is loaded",
}


@dataclass(frozen=True)
class Import:
    """One import statement: ``importer`` and ``target`` are full module names."""

    importer: str
    file: str
    line: int
    target: str
    lazy: bool
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: imports {self.target}"


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def targets(node: ast.AST) -> list[str]:
    """Return the modules that one node imports; ``from a import b`` gives both a and a.b."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports are banned (ruff TID252)"
        assert node.module is not None
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
            return [node.args[0].value]
    return []


def walk(node: ast.AST, *, lazy: bool = False, typing_only: bool = False) -> Iterator[tuple[ast.AST, bool, bool]]:
    for child in ast.iter_child_nodes(node):
        child_lazy = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        child_typing = typing_only or (isinstance(child, ast.If) and is_type_checking(child.test))
        yield child, child_lazy, child_typing
        yield from walk(child, lazy=child_lazy, typing_only=child_typing)


@cache
def imports() -> list[Import]:
    return [
        Import(module, str(path.relative_to(ROOT)), getattr(node, "lineno", 0), target, lazy, typing_only)
        for module, path, tree in sources(*PACKAGES)
        for node, lazy, typing_only in walk(tree)
        for target in targets(node)
    ]


def test_every_part_has_files_and_is_seen() -> None:
    seen = {module.split(".")[0] for module, _, _ in sources(*PACKAGES)}
    assert seen == set(PACKAGES)
    assert any(found.lazy for found in imports()), "imports inside functions are not seen"


def test_each_part_imports_only_what_the_design_allows() -> None:
    violations = []
    for found in imports():
        rule = max((prefix for prefix in MAY_IMPORT if under(found.importer, prefix)), key=len)
        root = found.target.split(".")[0]
        if root in sys.stdlib_module_names or under(found.target, rule):
            continue
        if under(rule, found.target):
            continue  # `from server import batching` inside server.batching: the second target decides.
        allowed = MAY_IMPORT[rule]
        if any(under(found.target, name) or name.startswith(found.target + ".") for name in allowed):
            continue
        violations.append(f"{found}, but {rule} may import only {sorted(allowed) or 'the standard library'}")
    assert not violations, report(violations)


def test_batching_gets_its_clock_and_its_executor_as_arguments() -> None:
    violations = [
        str(found)
        for found in imports()
        if under(found.importer, "server.batching") and found.target.split(".")[0] in NOT_IN_BATCHING
    ]
    assert not violations, report(violations)


def test_private_tensorflow_is_touched_in_three_places_only() -> None:
    violations = [
        str(found)
        for found in imports()
        if found.target.startswith("tensorflow.")
        and re.match(r"tensorflow\.(python|core|compiler|dtensor|lite|tools)\b", found.target)
        and not found.file.startswith(PRIVATE_TENSORFLOW)
    ]
    assert not violations, report(violations)


def test_tensorflow_is_imported_only_where_it_belongs() -> None:
    violations = []
    for found in imports():
        if found.target.split(".")[0] not in {"tensorflow", "keras"} or found.typing_only:
            continue
        parts = LAZY_TENSORFLOW_PARTS if found.lazy else TENSORFLOW_PARTS
        if not any(under(found.importer, part) for part in parts):
            violations.append(f"{found}{'' if found.lazy else ' when it is imported'}")
    assert not violations, report(violations)


def uses_environment(node: ast.AST) -> bool:
    names = {"environ", "environb", "getenv", "putenv", "unsetenv"}
    if isinstance(node, ast.Attribute):
        return node.attr in names and isinstance(node.value, ast.Name) and node.value.id == "os"
    return isinstance(node, ast.ImportFrom) and node.module == "os" and any(a.name in names for a in node.names)


def test_settings_alone_read_the_environment() -> None:
    violations = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: uses the process environment"
        for _, path, tree in sources("rowwise", "vectorizer", "models", "server")
        for node in ast.walk(tree)
        if uses_environment(node) and str(path.relative_to(ROOT)) not in MAY_USE_ENVIRONMENT
    ]
    assert not violations, report(violations)

"""What importing a module does, in a fresh interpreter: nothing that can be seen, and no TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.source_files import ROOT, TENSORFLOW_PARTS, sources, under

PROBE = """
import importlib, json, logging, os, signal, sys, threading, warnings

def state():
    return {
        "environment": dict(os.environ),
        "threads": threading.active_count(),
        "signals": [str(signal.getsignal(s)) for s in sorted(signal.valid_signals()) if s not in (9, 19)],
        "log handlers": [str(h) for h in logging.getLogger().handlers],
        "log level": logging.getLogger().level,
        "warning filters": len(warnings.filters),
        "directory": os.getcwd(),
        "search path": list(sys.path),
        "descriptors": sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else [],
    }

result = {}
for name in sys.argv[1:]:
    before = state()
    importlib.import_module(name)
    after = state()
    result[name] = {
        "changed": [key for key in before if before[key] != after[key]],
        "tensorflow": "tensorflow" in sys.modules,
    }
print(json.dumps(result))
"""


def probe(modules: list[str]) -> dict[str, dict[str, object]]:
    """Import ``modules`` one after another in a fresh interpreter; say what each changed."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *modules], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, object]] = json.loads(done.stdout.splitlines()[-1])
    return result


def modules_without_tensorflow() -> list[str]:
    return [
        module
        for module, path, _ in sources("rowwise", "server")
        if not any(under(module, part) for part in TENSORFLOW_PARTS) and path.name != "__main__.py"
    ]


def test_importing_the_client_or_the_server_loads_no_tensorflow() -> None:
    for module in ("rowwise", "server.app", "rowwise.cli"):
        assert probe([module])[module]["tensorflow"] is False, f"importing {module} loads TensorFlow"


def test_the_supervisor_loads_neither_models_nor_http() -> None:
    script = "import sys, server.supervise.supervisor\nprint(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not {"fastapi", "numpy", "starlette", "tensorflow", "uvicorn"} & set(loaded.split())


def test_importing_a_module_changes_nothing() -> None:
    # Packages from elsewhere may do things of their own when they are first imported (a warning filter, a
    # handle on a random device): they come first, so that what is counted is ours.
    others = ["asyncio", "fastapi.applications", "fastapi.exceptions", "httpx", "numpy", "prometheus_client"]
    others += [
        "google.protobuf.json_format",
        "hpack",
        "pydantic_settings",
        "rich.progress",
        "typer",
        "uvicorn.config",
        "uvicorn.main",
        "uvloop",
    ]
    modules = modules_without_tensorflow()
    result = probe([*others, *modules])
    changed = {module: result[module]["changed"] for module in modules if result[module]["changed"]}
    assert not changed
    loaded = [module for module in modules if result[module]["tensorflow"]]
    assert not loaded, f"TensorFlow is loaded by {loaded[0]}"

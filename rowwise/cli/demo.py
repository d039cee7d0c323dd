"""``rowwise demo``."""

from __future__ import annotations

import importlib.util
import os
import sys

from rowwise.cli.exit_codes import failed

__all__ = ["demo"]

#: What it needs besides this package, and what brings it.
_NEEDED = {"sklearn": "scikit-learn", "loadtests": "the package loadtests, which the wheel has", "models": "the same"}


def demo() -> None:
    """Serve the handwritten-digits model, send it 1,797 real digits, and compare with the usual way. About two minutes.

    Starts a real server on a free port with a store of its own, which go when it ends; registers the per-example
    function; asks for all digits one by one from 32 callers and compares each answer with the function's own; then
    measures the same traffic against the server without batching and against a FastAPI server that calls the function
    for each request. It is what `make demo` runs. Needs the example models: pip install 'rowwise[models]'.

    [bold]Example[/bold]

        rowwise demo

    Exit codes: 0 every answer was the function's; 1 not, or something is not installed.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        needed = ", ".join(_NEEDED[name] for name in missing)
        raise failed(f"the demonstration needs {needed}: {sys.executable} -m pip install 'rowwise[models]'")
    # This process becomes it: what stops the one stops the other, with the servers that it has started.
    os.execv(sys.executable, [sys.executable, "-m", "loadtests.demo"])  # noqa: S606 - no shell is wanted

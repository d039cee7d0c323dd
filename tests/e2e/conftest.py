from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.ports import free_port

# Tests are imported by path, without packages: what they share is loaded here, once, under its own name.
_spec = importlib.util.spec_from_file_location("server_process", Path(__file__).with_name("server_process.py"))
assert _spec is not None
assert _spec.loader is not None
server_process = importlib.util.module_from_spec(_spec)
sys.modules["server_process"] = server_process
_spec.loader.exec_module(server_process)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server_process.ServerProcess]:
    """A server with the digits model, which it built itself; who registers may import the example models.

    Building and starting take longer than most tests: what needs no server of its own uses this one, in one process
    of the run (tests/conftest.py).
    """
    store = tmp_path_factory.mktemp("e2e") / "store"
    options = ("--model", "digits=models.digits:predict", "--import-package", "models", "--allow-source")
    with server_process.ServerProcess(store, *options, "--grpc-port", str(free_port())) as running:
        yield running.wait_ready()

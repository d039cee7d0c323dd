from __future__ import annotations

import subprocess
import sys

import pytest

import rowwise

_PROBE = """
import sys
import rowwise
early = {name for name in ("httpx", "numpy", "tensorflow", "typer") if name in sys.modules}
assert not early, early
rowwise.Client
from rowwise.cli import app
assert "tensorflow" not in sys.modules
assert "server" not in sys.modules
"""


def test_importing_the_package_the_client_and_the_command_loads_neither_tensorflow_nor_the_server():
    subprocess.run([sys.executable, "-c", _PROBE], check=True, timeout=300)


def test_every_public_name_is_there_and_they_are_sorted():
    assert rowwise.__all__ == sorted(rowwise.__all__)
    for name in rowwise.__all__:
        assert getattr(rowwise, name) is not None
    assert set(rowwise.__all__) <= set(dir(rowwise))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Klient'"):
        _ = rowwise.Klient


def test_the_module_runs_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "rowwise", "version"], check=True, timeout=300, capture_output=True, text=True
    )
    assert done.stdout == f"rowwise {rowwise.__version__}\n"

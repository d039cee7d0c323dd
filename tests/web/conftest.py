"""One service for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel


@pytest.fixture
def upload_dir(tmp_path: Path) -> Path:
    path = tmp_path / "uploads"
    path.mkdir()
    return path


@pytest.fixture
def service(upload_dir: Path) -> Service:
    """A service with default settings and the model ``sum``, version 3."""
    service = Service(upload_dir, import_packages=("models",))
    service.catalog.serve(ScriptedModel("sum", 3))
    return service


@pytest.fixture
def model(service: Service) -> ScriptedModel:
    """The model behind ``sum``."""
    return service.catalog.served["sum", 3]

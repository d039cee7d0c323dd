"""Artifacts that lie ready, and servers over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.artifact import SAVED_MODEL_DIR, Manifest
from tests.catalog.artifacts import make_artifact
from tests.catalog.world import Server


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that multiply by 1, 2 and 3, and one that TensorFlow can't load."""
    made = {}
    for factor in (1, 2, 3):
        path = tmp_path_factory.mktemp(f"times{factor}")
        make_artifact(path, factor)
        made[f"m:times{factor}"] = path
    damaged = tmp_path_factory.mktemp("damaged")
    manifest = Manifest.read(made["m:times1"])
    manifest.write(damaged)
    (damaged / SAVED_MODEL_DIR).mkdir()
    (damaged / SAVED_MODEL_DIR / "saved_model.pb").write_bytes(b"\xff")
    made["m:damaged"] = damaged
    return made


@pytest.fixture
def server(tmp_path: Path, artifacts: dict[str, Path]) -> Server:
    return Server(tmp_path / "store", artifacts)

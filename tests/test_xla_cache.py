from __future__ import annotations

import os
from pathlib import Path

import pytest

from server import xla_cache


def test_flags_that_the_user_has_set_stay(tmp_path: Path) -> None:
    environment = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=0"}
    xla_cache.keep_executables(tmp_path / "cache", environment)
    assert environment["TF_XLA_FLAGS"].startswith("--tf_xla_auto_jit=0 --tf_xla_persistent_cache_directory=")


def test_a_directory_that_the_user_has_chosen_is_used(tmp_path: Path) -> None:
    own = "--tf_xla_persistent_cache_directory=/elsewhere"
    environment = {"TF_XLA_FLAGS": own}
    xla_cache.keep_executables(tmp_path / "cache", environment)
    assert environment["TF_XLA_FLAGS"] == own
    assert not (tmp_path / "cache").exists()


def test_nobody_else_may_read_or_write_executables(tmp_path: Path) -> None:
    xla_cache.keep_executables(tmp_path / "cache", {})
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0


def test_the_oldest_executables_go_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_cache, "MAX_BYTES", 250)
    for age in range(4):
        file = tmp_path / f"executable-{age}"
        file.write_bytes(b"x" * 100)
        os.utime(file, (1_000_000 - age, 1_000_000 - age))
    xla_cache.keep_executables(tmp_path, {})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["executable-0", "executable-1"]


def test_a_directory_that_can_not_be_made_is_no_reason_not_to_serve(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no directory")
    environment: dict[str, str] = {}
    xla_cache.keep_executables(tmp_path / "store" / "xla-cache", environment)
    assert environment == {}


def test_a_builder_leaves_the_servers_cache_alone_whose_files_count_as_compiled_for_requests(tmp_path: Path) -> None:
    environment = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}
    xla_cache.keep_executables(tmp_path / "server", environment)
    xla_cache.keep_executables(tmp_path / "builder", environment, is_set_by_parent=True)
    assert xla_cache.where_kept(environment) == (tmp_path / "builder").absolute()
    assert "server" not in environment["TF_XLA_FLAGS"].replace(str(tmp_path), "")
    assert environment["TF_XLA_FLAGS"].startswith("--tf_xla_auto_jit=2")

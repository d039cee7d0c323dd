"""What is compiled while a version is loaded is right; what is compiled at other times is counted."""

from __future__ import annotations

from pathlib import Path

from server.after_ready import AfterReady
from server.xla_cache import keep_executables, where_kept


def test_executables_that_appear_while_nothing_is_loaded_are_counted(tmp_path: Path) -> None:
    (tmp_path / "from-the-last-run").touch()
    watch = AfterReady(tmp_path)
    with watch.loading():
        (tmp_path / "warmed").touch()
        assert watch.n_compiled == 0
    assert watch.n_compiled == 0
    (tmp_path / "for-a-request").touch()
    assert watch.n_compiled == 1
    with watch.loading():
        (tmp_path / "of-another-version").touch()
    assert watch.n_compiled == 1
    (tmp_path / "for-another-request").touch()
    assert watch.n_compiled == 2


def test_a_load_that_fails_ends_all_the_same(tmp_path: Path) -> None:
    watch = AfterReady(tmp_path)
    try:
        with watch.loading():
            (tmp_path / "half").touch()
            raise ValueError
    except ValueError:
        pass
    (tmp_path / "for-a-request").touch()
    assert watch.n_compiled == 1


def test_without_a_directory_nothing_is_known_and_nothing_is_claimed() -> None:
    watch = AfterReady(None)
    with watch.loading():
        pass
    assert watch.n_compiled == 0


def test_the_directory_is_the_one_that_xla_was_told(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    keep_executables(tmp_path / "cache", environment)
    assert where_kept(environment) == tmp_path / "cache"
    assert where_kept({"TF_XLA_FLAGS": "--tf_xla_auto_jit=0"}) is None

"""What holds for the whole run."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.log_levels import log_levels, log_levels_put_back


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests stay in one process, and so do all that use the real server: it is built and started once."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "tests/e2e" if nodeid.startswith("tests/e2e/") else str(super()._split_scope(nodeid))

        def remove_node(self, node: Any) -> str | None:
            """Hand on what a process had not run yet, and return the test that it died in, if it died.

            The base class hands on the files that it had done as well: the process that gets one waits for ever, as
            nothing in it is left to run. And it hands on the deadly test, which would kill the next process too.
            """
            files = [(file, tests) for file, tests in self.assigned_work.pop(node).items() if not all(tests.values())]
            if not files:
                return None
            deadly: str = next(test for test, is_done in files[0][1].items() if not is_done)
            files[0][1][deadly] = True
            self.workqueue.update((file, tests) for file, tests in files if not all(tests.values()))
            for other in self.assigned_work:
                self._reschedule(other)
            return deadly

        def _assign_work_unit(self, node: Any) -> None:
            """Give a process its next file; of one that has just died, `remove_node` hands it on."""
            with contextlib.suppress(OSError):
                super()._assign_work_unit(node)

        def _reschedule(self, node: Any) -> None:
            """Give a process work until it has two tests: it holds one back until it knows of the next."""
            super()._reschedule(node)
            while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


#: Cases of one parametrized test that `make test` runs, by where the test is; the others are in `make test-long`.
_CASES = {"tests/vectorizer/": 1, "tests/benchmarks/": 1}
_n_cases: Counter[tuple[str, str]] = Counter()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave further cases of one kind to the long run: each traces, converts and runs a function of its own."""
    most = next((n for place, n in _CASES.items() if item.nodeid.startswith(place)), None)
    if most is not None and isinstance(item, pytest.Function):
        kind = (item.nodeid.partition("::")[0], item.originalname)
        _n_cases[kind] += 1
        if _n_cases[kind] > most:
            item.add_marker("long")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests go first: one that came last would keep one process busy while the other has nothing."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def fresh_weights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The digit models are trained afresh, once for all processes of the run: no test may pass on old weights."""
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROWWISE_CACHE", str(directory / "weights"))
        yield


@pytest.fixture(scope="module", autouse=True)
def log_levels_stay() -> Iterator[None]:
    """A file that changes from which level on is logged puts it back: tests of others count what was logged."""
    with log_levels_put_back():
        before = log_levels()
        yield
        assert log_levels() == before

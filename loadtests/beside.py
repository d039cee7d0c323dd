"""What callers notice of changes: 100 version switches, and the build of a large model, at 80 % of a server's load.

python -m loadtests.beside
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from loadtests import large_model, workload
from loadtests.contenders import Server, rowwise_command
from loadtests.processes import children, is_builder, until
from loadtests.windows import Beside, beside, capacity

__all__ = ["Switches"]

_MODEL = "digits"


class Switches:
    """Activates two versions in turn, as long as the block lasts. ``n`` counts them."""

    def __init__(self, url: str, *, pause_s: float) -> None:
        self._url = f"{url}/v1/models/{_MODEL}/versions"
        self._pause_s = pause_s
        self._versions = itertools.cycle((1, 2))
        self.n = 0

    @staticmethod
    def are_possible(url: str) -> bool:
        """Return whether there are two versions."""
        return len(httpx.get(f"{url}/v1/models/{_MODEL}", timeout=60).json()["model_version_status"]) > 1

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Switch, one after the other. Errors: RuntimeError if a switch fails."""
        stopped, failures = threading.Event(), []

        def work() -> None:
            while not stopped.is_set():
                answer = httpx.post(f"{self._url}/{next(self._versions)}:activate", timeout=120)
                if answer.status_code != 200:
                    failures.append(f"{answer.status_code}: {answer.text[:300]}")
                    return
                self.n += 1
                stopped.wait(self._pause_s)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()
        if failures:
            raise RuntimeError(f"a switch was answered {failures[0]}")


def _register(url: str, name: str, target: str, *, wait: bool, **options: Any) -> None:
    question = "?wait=true" if wait else ""
    answer = httpx.put(f"{url}/v1/models/{name}{question}", json={"import_path": target, **options}, timeout=1_800)
    if answer.status_code not in (200, 201, 202):
        raise RuntimeError(f"registering {name} was answered {answer.status_code}: {answer.text[:500]}")


def _builders(server: int) -> list[int]:
    return [pid for pid, line in children(server).items() if is_builder(line)]


@contextmanager
def _running(pids: list[int]) -> Iterator[None]:
    """Let a stopped builder go on inside the block."""
    for pid in pids:
        os.killpg(pid, signal.SIGCONT)
    try:
        yield
    finally:
        for pid in pids:
            os.killpg(pid, signal.SIGSTOP)


def switched(server: Server, path: Path, *, rate: float, n_switches: int, pause_s: float) -> tuple[int, Beside]:
    """Switch about ``n_switches`` times, in windows; return how often it was, and what callers saw."""
    switches = Switches(server.url, pause_s=pause_s)
    seen = beside(server.url, path, switches.going_on, rate=rate, n_pairs=1_000, go_on=lambda: switches.n < n_switches)
    return switches.n, seen


def built(server: Server, path: Path, *, rate: float, n_pairs: int) -> Beside:
    """Build a large model, which is stopped in every second window."""
    _register(server.url, "large", "loadtests.large_model:predict", wait=False, **large_model.BUILD)
    until(lambda: _builders(server.pid), "a builder")
    builders = _builders(server.pid)
    return beside(
        server.url,
        path,
        lambda: _running(builders),
        rate=rate,
        n_pairs=n_pairs,
        go_on=lambda: _builders(server.pid) == builders,
    )


def _command(
    load: Annotated[float, typer.Option(min=0.05, max=1.0, help="Share of the closed loop's throughput.")] = 0.8,
    n_switches: Annotated[int, typer.Option("--switches", min=0, help="Version switches, about.")] = 100,
    pause_s: Annotated[float, typer.Option(min=0.0, help="Seconds between two switches.")] = 0.1,
    store: Annotated[Path | None, typer.Option(help="A store to begin with, copied; saves building the model.")] = None,
    n_pairs: Annotated[int, typer.Option("--build-windows", min=0, help="Windows with a build under way.")] = 10,
) -> None:
    """Compare callers' 99th percentile with and without what goes on beside them."""
    with tempfile.TemporaryDirectory(prefix="rowwise-beside-") as name:
        directory = Path(name)
        path = workload.make(_MODEL, directory)
        if store is not None:
            shutil.copytree(store, directory / "store")

        def command(port: int) -> list[str]:
            return [
                *rowwise_command(port, store=directory / "store", models=[_MODEL]),
                *("--import-package", "loadtests"),
            ]

        with Server("rowwise serve", command, timeout_s=900.0) as server:
            most = capacity(server.url, path)
            print(f"{most:,.0f} requests a second with 32 callers; what follows is at {load:.0%} of that")
            if n_switches:
                if not Switches.are_possible(server.url):
                    _register(server.url, _MODEL, f"{workload.MODELS[_MODEL]}:predict", wait=True)
                n, seen = switched(server, path, rate=load * most, n_switches=n_switches, pause_s=pause_s)
                print(f"{n} switches: {seen}")
            if n_pairs:
                print(f"a build: {built(server, path, rate=load * most, n_pairs=n_pairs)}")


if __name__ == "__main__":
    typer.run(_command)

"""What a console that somebody looks at costs the server: full load with viewers and without, in turn.

A machine's own ups and downs are longer than a window, so that each window is compared with its neighbour; of all the
ratios the median counts. Viewers are read without a browser, which would be on another machine. The load keeps every
connection busy, so that what the console takes is missing from what is answered.

python -m loadtests.console_cost
"""

from __future__ import annotations

import statistics
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer

from loadtests import workload
from loadtests.contenders import Server, rowwise_command
from loadtests.driver_process import DriverProcess

__all__ = ["Cost", "compared", "watching"]

_MODEL = "digits"
#: What the console's page asks beside its stream, and how often.
_ASKS, _ASKS_EVERY_S = "/v1/debug/batches?limit=40", 2.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Requests a second with viewers over those without, by pairs of windows; and snapshots that viewers got."""

    ratios: tuple[float, ...]
    quiet_per_s: float
    n_snapshots: int
    n_failures: int

    @property
    def ratio(self) -> float:
        """The median."""
        return statistics.median(self.ratios)

    def __str__(self) -> str:
        """Say it in a line."""
        listed = " ".join(f"{ratio:.3f}" for ratio in sorted(self.ratios))
        return (
            f"throughput with viewers over without: {self.ratio:.3f}, the median of {len(self.ratios)} pairs "
            f"({listed}); {self.quiet_per_s:,.0f} requests/s without, {self.n_snapshots} snapshots seen, "
            f"{self.n_failures} failures"
        )


@contextmanager
def watching(url: str, *, n_viewers: int) -> Iterator[list[int]]:
    """Look at the console inside the block, as its page does. Yields a list that gets an item for each snapshot.

    Errors: RuntimeError if a viewer was refused: then nobody looked.
    """
    seen: list[int] = []
    refused: list[str] = []
    stopped = threading.Event()
    begun = threading.Semaphore(0)

    def stream() -> None:
        try:
            with httpx.stream("GET", f"{url}/v1/console/live", timeout=60) as answer:
                answer.raise_for_status()
                begun.release()
                for line in answer.iter_lines():
                    if line == "event: snapshot":
                        seen.append(1)
                    if stopped.is_set():
                        return
                refused.append("the stream ended")
        except httpx.HTTPError as error:
            refused.append(str(error))
            begun.release()

    def poll() -> None:
        try:
            with httpx.Client(base_url=url, timeout=60) as http:
                while not stopped.wait(_ASKS_EVERY_S):
                    http.get(_ASKS).raise_for_status()
        except httpx.HTTPError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=work) for work in [stream, poll] * n_viewers]
    for thread in threads:
        thread.start()
    try:
        for _ in range(n_viewers):
            begun.acquire()
        yield seen
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    if refused:
        raise RuntimeError(f"a viewer was sent away: {refused[0]}")


def compared(
    url: str, path: Path, driver: DriverProcess, *, n_pairs: int, window_s: float, callers: int, n_viewers: int
) -> Cost:
    """Load a server in windows, every second one with viewers. Which comes first changes from pair to pair."""
    ratios: list[float] = []
    quiet: list[float] = []
    n_snapshots = n_failures = 0

    def window() -> float:
        nonlocal n_failures
        measured = driver.drive(url, path, callers=callers, duration_s=window_s)
        n_failures += sum(measured.failures.values())
        return measured.requests_per_s

    def watched() -> float:
        nonlocal n_snapshots
        with watching(url, n_viewers=n_viewers) as seen:
            per_s = window()
        n_snapshots += len(seen)
        return per_s

    window()
    for pair in range(n_pairs):
        if pair % 2:
            with_them, without = watched(), window()
        else:
            without, with_them = window(), watched()
        quiet.append(without)
        ratios.append(with_them / without)
    return Cost(
        ratios=tuple(ratios), quiet_per_s=statistics.median(quiet), n_snapshots=n_snapshots, n_failures=n_failures
    )


def _command(
    n_pairs: Annotated[int, typer.Option("--pairs", min=1, help="Pairs of windows.")] = 20,
    window_s: Annotated[float, typer.Option("--window", min=0.5, help="Seconds of a window.")] = 4.0,
    callers: Annotated[int, typer.Option(min=1, help="Connections that are kept busy.")] = 64,
    n_viewers: Annotated[int, typer.Option("--viewers", min=1, help="Consoles that look.")] = 1,
    http_workers: Annotated[int, typer.Option(min=0, help="HTTP processes of the server.")] = 0,
    at_most: Annotated[float | None, typer.Option(help="Fail if more than this share is lost.")] = None,
) -> None:
    """Print the ratio of throughputs."""
    with tempfile.TemporaryDirectory(prefix="rowwise-console-") as name:
        directory = Path(name)
        path = workload.make(_MODEL, directory)

        def command(port: int) -> list[str]:
            started = rowwise_command(port, store=directory / "store", models=[_MODEL])
            return [*started, "--http-workers", str(http_workers)]

        with Server("rowwise serve", command, timeout_s=900.0) as server, DriverProcess() as driver:
            cost = compared(
                server.url,
                path,
                driver,
                n_pairs=n_pairs,
                window_s=window_s,
                callers=callers,
                n_viewers=n_viewers,
            )
    print(cost)
    if at_most is not None and cost.ratio < 1 - at_most:
        raise SystemExit(f"it costs {1 - cost.ratio:.1%} of the throughput: {at_most:.0%} are allowed")


if __name__ == "__main__":
    typer.run(_command)

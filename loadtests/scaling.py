"""What each part of a request costs, and so which part is full first on 4, 16 and 64 cores.

The server runs as one process, then with one and two HTTP workers, under the same load. From the processor time of
each process and the execution time in its metrics follows what one request demands of a worker, of the engine's event
loop and of the threads that execute. How much of that a larger machine can do is operational analysis: no part can be
used more than all of the time, so that the throughput is at most the smallest, over all parts, of how many there are of
it over what a request demands of one. Nothing is assumed about the order in which requests come.

The same bound for this machine, where whoever asks has a share of the cores too, stands beside what was measured: no
run may be above it, and one that keeps a part or the cores busy should be near.

    python -m loadtests.scaling [--models digits,digits_convnet,lstm] [--store DIRECTORY] [--output FILE]

Source: P. J. Denning and J. P. Buzen, "The Operational Analysis of Queueing Network Models", 1978, utilization law.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer
from prometheus_client.parser import text_string_to_metric_families

from loadtests import workload
from loadtests.contenders import Server, rowwise_command
from loadtests.driver_process import DriverProcess
from loadtests.processes import children, cpu_s
from loadtests.terminal import terminal
from server.engine.executor import INLINE_S

__all__ = ["CORES", "Demand", "Split", "bound_here", "bounds", "markdown"]

#: Machines that are spoken of.
CORES = (4, 16, 64)
_WORKERS = (0, 1, 2)
#: Columns of what was measured; times are of one request.
_MEASURED = (
    "HTTP workers",
    "callers",
    "worker, us",
    "event loop, us",
    "execution, us",
    "driver, us",
    "batch, us",
    "at most here, requests/s",
    "full first",
    "measured",
    "of it",
)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Seconds of processor time that one request demands of each part, and what the run answered.

    ``loop_s`` is the engine's event loop without executing, in one process all of HTTP with it; ``execute_s`` is the
    batch's execution, divided by its rows; ``batch_s`` a whole batch's. ``driver_s`` is what asking took.
    """

    http_workers: int
    callers: int
    requests_per_s: float
    worker_s: float
    loop_s: float
    execute_s: float
    batch_s: float
    driver_s: float = 0.0

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.worker_s + self.loop_s + self.execute_s

    @property
    def is_inline(self) -> bool:
        """Whether its batches run on the event loop."""
        return self.batch_s <= INLINE_S


@dataclass(frozen=True, order=True)
class Split:
    """How many requests a second a machine's cores can do at most, and how they are divided then.

    ``full`` names the part that is. Of equal throughput, the split that takes fewer cores is the greater.
    """

    requests_per_s: float
    minus_workers: int
    minus_engines: int
    full: str


def bounds(demand: Demand, cores: int) -> Split:
    """Return the best division of ``cores``: one for the engine's event loop, others for workers and executing threads.

    Errors: ValueError for fewer than two cores.
    """
    if cores < 2:
        raise ValueError(f"cores is {cores}: an event loop and whatever is beside it take at least 2")
    return max(_splits(demand, cores))


def _splits(demand: Demand, cores: int) -> Iterator[Split]:
    most_workers = cores - 1 if demand.http_workers else 0
    for workers in range(min(1, most_workers), most_workers + 1):
        for engines in (0,) if demand.is_inline else range(1, cores - workers):
            if demand.is_inline:
                parts = {"event loop with execution": 1 / (demand.loop_s + demand.execute_s)}
            else:
                parts = {"event loop": 1 / demand.loop_s, "execution": engines / demand.execute_s}
            if demand.http_workers:
                parts["HTTP workers"] = workers / demand.worker_s
            full = min(parts, key=parts.__getitem__)
            yield Split(parts[full], -workers, -engines, full)


def bound_here(demand: Demand, cores: int) -> tuple[float, str]:
    """Return what the run itself could answer at most, requests/s, and what is full then.

    ``cores`` are shared by all of the server's processes and whoever asks.
    """
    parts = {"cores": cores / (demand.total_s + demand.driver_s), "driver": _rate(1, demand.driver_s)}
    if demand.is_inline:
        parts["event loop with execution"] = _rate(1, demand.loop_s + demand.execute_s)
    else:
        parts |= {"event loop": _rate(1, demand.loop_s), "execution": _rate(1, demand.execute_s)}
    if demand.http_workers:
        parts["HTTP workers"] = _rate(demand.http_workers, demand.worker_s)
    full = min(parts, key=parts.__getitem__)
    return parts[full], full


def _rate(n: int, each_s: float) -> float:
    return n / each_s if each_s else math.inf


@dataclass(frozen=True)
class _Spent:
    """What a server's processes have used so far, seconds, and what it has executed."""

    workers_s: float
    engine_s: float
    compute_s: float
    batches: float
    rows: float

    @classmethod
    def of(cls, server: Server, model: str) -> _Spent:
        workers_s = engine_s = 0.0
        lines = children(server.pid)
        for pid, line in lines.items():
            spent = cpu_s(pid)
            if line[-1].startswith("worker"):
                workers_s += spent
            else:
                engine_s += spent
        if not lines:
            engine_s = cpu_s(server.pid)
        seen = dict.fromkeys(("rowwise_compute_seconds_sum", "rowwise_batches_total", "rowwise_rows_total"), 0.0)
        for family in text_string_to_metric_families(httpx.get(f"{server.url}/metrics", timeout=60).text):
            for sample in family.samples:
                if sample.name in seen and sample.labels.get("model") == model:
                    seen[sample.name] += sample.value
        return cls(workers_s, engine_s, *seen.values())

    def __sub__(self, other: _Spent) -> _Spent:
        return _Spent(
            self.workers_s - other.workers_s,
            self.engine_s - other.engine_s,
            self.compute_s - other.compute_s,
            self.batches - other.batches,
            self.rows - other.rows,
        )


def _measure(
    servers: Mapping[int, Server], driver: DriverProcess, model: str, file: Path, *, callers: int, repeats: int
) -> list[Demand]:
    """Measure the servers in turn, ``repeats`` times, and return the medians."""
    seen: dict[int, list[Demand]] = {}
    for _ in range(repeats):
        for workers, server in servers.items():
            driver.drive(server.url, file, callers=callers, duration_s=0.5)
            before = _Spent.of(server, model)
            run = driver.drive(server.url, file, callers=callers, warmup_s=0.0, duration_s=3.0)
            spent = _Spent.of(server, model) - before
            if run.failures:
                raise RuntimeError(run.first_failure)
            seen.setdefault(workers, []).append(
                Demand(
                    http_workers=workers,
                    callers=callers,
                    requests_per_s=run.requests_per_s,
                    worker_s=spent.workers_s / spent.rows,
                    loop_s=max(spent.engine_s - spent.compute_s, 0.0) / spent.rows,
                    execute_s=spent.compute_s / spent.rows,
                    batch_s=spent.compute_s / spent.batches,
                    driver_s=run.busy / run.requests_per_s,
                )
            )
    return [_median(found) for found in seen.values()]


def _median(found: Sequence[Demand]) -> Demand:
    def middle(name: str) -> float:
        return float(statistics.median(getattr(demand, name) for demand in found))

    return Demand(
        http_workers=found[0].http_workers,
        callers=found[0].callers,
        **{name: middle(name) for name in ("requests_per_s", "worker_s", "loop_s", "execute_s", "batch_s", "driver_s")},
    )


def markdown(model: str, demands: Sequence[Demand], *, cores_here: int) -> str:
    """Return the two tables of a model: what was measured, and what follows from it for larger machines."""
    lines = [
        f"## {model}",
        "",
        f"| {' | '.join(_MEASURED)} |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|",
        *(_measured_row(demand, cores_here) for demand in demands),
        "",
        "| cores | form | at most, requests/s | full first | workers | executing threads |",
        "|---:|---|---:|---|---:|---:|",
    ]
    busiest = {demand.http_workers: demand for demand in demands if demand.callers == max(d.callers for d in demands)}
    for cores in CORES:
        for workers, form in ((0, "one process"), (max(busiest), "with HTTP workers")):
            split = bounds(busiest[workers], cores)
            threads = "on the loop" if busiest[workers].is_inline else -split.minus_engines
            lines.append(
                f"| {cores} | {form} | {split.requests_per_s:,.0f} | {split.full} | {-split.minus_workers} | "
                f"{threads} |"
            )
    return "\n".join(lines) + "\n"


def _measured_row(demand: Demand, cores_here: int) -> str:
    bound, full = bound_here(demand, cores_here)
    times_s = (demand.worker_s, demand.loop_s, demand.execute_s, demand.driver_s)
    cells = [
        str(demand.http_workers),
        str(demand.callers),
        *(f"{1e6 * seconds:.1f}" for seconds in times_s),
        f"{1e6 * demand.batch_s:,.0f}",
        f"{bound:,.0f}",
        full,
        f"{demand.requests_per_s:,.0f}",
        f"{demand.requests_per_s / bound:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


@contextmanager
def _servers(store: Path, copies: Path, model: str) -> Iterator[dict[int, Server]]:
    """Start a server with each number of workers, all on copies of one store, in the directory ``copies``.

    A store that is there already has what was built for an earlier run.
    """
    if not store.exists():
        with Server("builds", lambda port: rowwise_command(port, store=store, models=[model]), timeout_s=900.0):
            pass
    copies.mkdir(exist_ok=True)
    servers = {}
    for workers in _WORKERS:
        own = copies / f"{model}-{workers}"
        shutil.copytree(store, own, symlinks=True)

        def command(port: int, own: Path = own, workers: int = workers) -> list[str]:
            return [*rowwise_command(port, store=own), "--http-workers", str(workers)]

        servers[workers] = Server(f"{workers} workers", command, timeout_s=300.0)
    with ExitStack() as running, ThreadPoolExecutor(len(servers)) as starting:
        for server in servers.values():
            running.callback(server.stop)
        # They load TensorFlow, each on a core of its own.
        list(starting.map(Server.__enter__, servers.values()))
        yield servers


def _command(
    models: Annotated[str, typer.Option(help="Example models, separated by commas.")] = "digits,digits_convnet,lstm",
    callers: Annotated[str, typer.Option(help="Numbers of callers, separated by commas.")] = "32,128",
    repeats: Annotated[int, typer.Option(min=1, help="Interleaved runs, of which the medians count.")] = 3,
    store: Annotated[Path | None, typer.Option(help="Keep what is made there, and take it if it is there.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the tables there, as Markdown.")] = None,
) -> None:
    """Measure what a request demands of each part, and say what larger machines can do."""
    console = terminal()
    parts = []
    with tempfile.TemporaryDirectory(prefix="rowwise-scaling-") as name, DriverProcess() as driver:
        directory = Path(name)
        for model in models.split(","):
            kept = directory if store is None else store
            kept.mkdir(parents=True, exist_ok=True)
            file = kept / f"{model}.json"
            if not file.exists():
                file = workload.make(model, kept)
            with _servers(kept / model, directory / "copies", model) as servers:
                found = [
                    demand
                    for n in callers.split(",")
                    for demand in _measure(servers, driver, model, file, callers=int(n), repeats=repeats)
                ]
            parts.append(markdown(model, found, cores_here=len(os.sched_getaffinity(0))))
            console.print(parts[-1])
    if output is not None:
        output.write_text("\n".join(parts))


if __name__ == "__main__":
    typer.run(_command)

"""``make ray-race``: Rowwise against a hand-made ``@serve.batch`` on one Ray cluster, behind the same proxy.

Both serve the digits model with as many replicas, and are asked in turn by the same callers; every answer is checked
against the per-example function's. Whoever is not asked has nothing to do meanwhile.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from loadtests.compare import built_store
from loadtests.driver import Measurement, drive
from loadtests.peers.ray_batch_server import APPLICATION
from loadtests.peers.ray_batch_server import PATH as BY_HAND_PATH
from loadtests.ports import free_port
from loadtests.ray_cluster import RayCluster, ray_application
from loadtests.terminal import terminal
from loadtests.workload import load, make

__all__ = ["ratio", "rows_of"]

_MODEL = "digits"
OURS, BY_HAND = "Rowwise", "@serve.batch by hand"
_READY = "/v2/health/ready"

Runs = dict[tuple[int, str], list[Measurement]]
CpuTimes = dict[tuple[int, str], list[float]]


def rows_of(runs: Runs, cpu_us: CpuTimes | None = None) -> list[dict[str, float | int | str]]:
    """Return the medians of each server at each number of callers.

    ``cpu_us``: what its replicas used of the processor for a request, by run. A busy machine changes it least.
    """
    return [
        {
            "callers": callers,
            "server": server,
            "requests_per_s": statistics.median(run.requests_per_s for run in found),
            "p50_ms": statistics.median(run.p50_us for run in found) / 1e3,
            "p99_ms": statistics.median(run.p99_us for run in found) / 1e3,
            "replica_us": statistics.median(cpu_us[callers, server]) if cpu_us else 0.0,
            "failures": sum(sum(run.failures.values()) for run in found),
        }
        for (callers, server), found in sorted(runs.items())
    ]


def ratio(runs: Runs, callers: int) -> float:
    """Return the median, over rounds, of our requests a second over theirs in the same round."""
    pairs = zip(runs[callers, OURS], runs[callers, BY_HAND], strict=True)
    return statistics.median(ours.requests_per_s / theirs.requests_per_s for ours, theirs in pairs)


def _command(
    *,
    callers: Annotated[str, typer.Option(help="Numbers of callers.")] = "8,32,128",
    replicas: Annotated[int, typer.Option(min=1, help="Replicas of each.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; medians count.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Seconds of each measurement.")] = 3.0,
    own_proxy: Annotated[bool, typer.Option("--own-proxy", help="Ray Serve's own proxy, without HAProxy.")] = False,
    store: Annotated[Path | None, typer.Option(help="A store that has the digits model; else it is built.")] = None,
    output: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("reports/ray"),
) -> None:
    """Measure both, interleaved. Exit 1 if an answer was wrong or missing."""
    console = terminal()
    runs: Runs = defaultdict(list)
    cpu_us: CpuTimes = defaultdict(list)
    numbers = [int(number) for number in callers.split(",")]
    with tempfile.TemporaryDirectory(prefix="rowwise-ray-") as scratch, ExitStack() as running:
        directory = Path(scratch)
        workload = load(make(_MODEL, directory))
        if store is None:
            store = directory / "store"
            console.print("Building the model")
            built_store(store, [_MODEL], core=None, on_wait=lambda: None)
        console.print("Starting Ray")
        cluster = running.enter_context(RayCluster(directory, n_cpus=2 * replicas, haproxy=not own_proxy))
        port = str(free_port())
        command = ["deploy/ray_serve.py", "--store", str(store), "--follow-store", "--port", port]
        command += ["--replicas", str(replicas), *([] if own_proxy else ["--haproxy"])]
        url = running.enter_context(ray_application(cluster, directory, "rowwise", command, ready=_READY))
        command = ["-m", "loadtests.peers.ray_batch_server", port, str(replicas)]
        running.enter_context(ray_application(cluster, directory, APPLICATION, command, ready=BY_HAND_PATH))
        asked = {OURS: workload, BY_HAND: replace(workload, model=APPLICATION)}
        names = {OURS: "rowwise", BY_HAND: APPLICATION}
        for requests in asked.values():  # so that all is warm
            drive(url, requests, callers=numbers[-1], duration_s=seconds)
        for number in range(rounds):
            for n_callers in numbers:
                for server, requests in asked.items():
                    console.print(f"round {number + 1}: {server}, {n_callers} callers")
                    before_s = cluster.replica_cpu_s(names[server])
                    run = drive(url, requests, callers=n_callers, warmup_s=0.0, duration_s=seconds)
                    runs[n_callers, server].append(run)
                    used_s = cluster.replica_cpu_s(names[server]) - before_s
                    cpu_us[n_callers, server].append(1e6 * used_s / max(1, run.n_answers))
    table = Table("callers", "server", "requests/s", "ours is", "p50 ms", "p99 ms", "replica CPU us", "failures")
    for row in rows_of(runs, cpu_us):
        ours = f"{ratio(runs, int(row['callers'])):.2f}x" if row["server"] == OURS else ""
        table.add_row(
            str(row["callers"]),
            str(row["server"]),
            f"{row['requests_per_s']:,.0f}",
            ours,
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
            f"{row['replica_us']:,.0f}",
            str(row["failures"]),
        )
    console.print(table)
    output.mkdir(parents=True, exist_ok=True)
    report = {
        "proxy": "Ray Serve" if own_proxy else "HAProxy",
        "replicas": replicas,
        "medians": rows_of(runs, cpu_us),
        "ours_is": {str(number): ratio(runs, number) for number in numbers},
        "runs": {f"{number} {server}": list(map(asdict, found)) for (number, server), found in runs.items()},
    }
    path = output / ("own_proxy.json" if own_proxy else "haproxy.json")
    path.write_text(json.dumps(report, indent=1))
    console.print(f"Written: {path}")
    failures = [run.first_failure for found in runs.values() for run in found if run.failures]
    if failures:
        console.print(f"First failure: {failures[0]}", markup=False)
    raise typer.Exit(1 if failures else 0)


if __name__ == "__main__":
    typer.run(_command)

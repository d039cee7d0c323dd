"""``make race`` without a directory: our server against the ones that a package index brings, on the digits model.

Every server has one core and the driver the other; all are up at once, and only one of them has work at any time. They
get the same requests, every answer is checked, and a round takes all of them in turn. mosec's best batch size depends
on how many callers there are, so it runs with each of four; the best of them at a number of callers counts as mosec's.

    python -m loadtests.peer_race [--callers 1,8,32,128] [--repeats 3]
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track
from rich.table import Table

from loadtests import workload
from loadtests.compare import built_store, machine
from loadtests.comparison import Comparison, Median, Run
from loadtests.contenders import Cores, Server, cores_in_use, rowwise_command
from loadtests.driver_process import DriverProcess
from loadtests.processes import tree_cpu_s
from loadtests.terminal import terminal

__all__ = ["OURS", "envelope", "markdown", "peers"]

OURS = "Rowwise"
_MODEL = "digits"
_MOSEC_BATCHES = (1, 8, 32, 64)
_WARMUP_S = 0.3


def peers() -> dict[str, Callable[[int], list[str]]]:
    """Return what starts each peer that is installed, by name and port."""

    def module(name: str, *arguments: object) -> Callable[[int], list[str]]:
        return lambda port: [sys.executable, "-m", f"loadtests.peers.{name}", str(port), *map(str, arguments)]

    found = {"ASGI by hand": module("asgi_server")}
    if importlib.util.find_spec("mosec"):
        found |= {f"mosec, batch {size}": module("mosec_server", size) for size in _MOSEC_BATCHES}
    if importlib.util.find_spec("litserve"):
        found["LitServe"] = module("litserve_server")
    return found


def envelope(comparison: Comparison, contenders: Sequence[str], callers: int) -> dict[str, Median]:
    """Return the medians of each server at a number of callers: of those that differ by a setting, the best."""
    best: dict[str, Median] = {}
    for contender in contenders:
        name, cell = contender.partition(",")[0], comparison.median(_MODEL, contender, callers)
        if name not in best or cell.requests_per_s > best[name].requests_per_s:
            best[name] = cell
    return best


def markdown(comparison: Comparison, contenders: Sequence[str], *, missing: Sequence[str]) -> str:
    """Return the report: facts, and a table of every server at every number of callers."""
    machine_facts = ", ".join(f"{key} {value}" for key, value in comparison.machine.items())
    facts = (
        f"Digits model, JSON, one image a request. {machine_facts}; medians of {comparison.repeats} interleaved runs, "
        f"every answer checked ({comparison.n_checked():,} answers, {sum(1 for _ in comparison.failures())} runs with "
        f"wrong or missing ones). Other processes kept {comparison.others:.1f} cores busy when it started."
    )
    lines = [
        "# Race",
        "",
        facts,
        "",
        *(f"Not installed, and so left out: {name}.\n" for name in missing),
        "![Throughput and latency against callers](race.png)",
        "",
        "| callers | server | requests/s | ours is | p50 ms | p99 ms | CPU us a request |",
        "|---:|---|---:|---:|---:|---:|---:|",
    ]
    for callers in comparison.callers:
        cells = envelope(comparison, contenders, callers)
        for name, cell in sorted(cells.items(), key=lambda entry: -entry[1].requests_per_s):
            times = cells[OURS].requests_per_s / cell.requests_per_s
            lines.append(
                f"| {callers} | {name} | {cell.requests_per_s:,.0f} | {times:.2f}x | {cell.p50_us / 1e3:.2f} | "
                f"{cell.p99_us / 1e3:.2f} | {cell.server_us:.0f} |"
            )
    return "\n".join(lines) + "\n"


def _answers(url: str, *, body: bytes) -> bool:
    request = urllib.request.Request(
        f"{url}/v1/models/{_MODEL}:predict", body, {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _measure(
    comparison: Comparison, driver: DriverProcess, servers: dict[str, Server], file: Path, *, duration_s: float
) -> None:
    cells = [(callers, repeat) for callers in comparison.callers for repeat in range(comparison.repeats)]
    for callers, repeat in track(cells, "racing", console=terminal()):
        for name, server in servers.items():
            driver.drive(server.url, file, callers=callers, duration_s=_WARMUP_S)
            before_s = tree_cpu_s(server.pid)
            measured = driver.drive(server.url, file, callers=callers, warmup_s=0.0, duration_s=duration_s)
            spent_s = tree_cpu_s(server.pid) - before_s
            comparison.runs.append(
                Run(
                    model=_MODEL,
                    contender=name,
                    callers=callers,
                    repeat=repeat,
                    server_us=spent_s / max(1, measured.n_answers) * 1e6,
                    measured=measured,
                )
            )


def _draw(comparison: Comparison, contenders: Sequence[str], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(1, 2)
    by_callers = [envelope(comparison, contenders, callers) for callers in comparison.callers]
    for name in by_callers[0]:
        width = 2.5 if name == OURS else 1.2
        panels[0].plot(
            comparison.callers, [cells[name].requests_per_s for cells in by_callers], "o-", lw=width, label=name
        )
        panels[1].plot(comparison.callers, [cells[name].p99_us / 1e3 for cells in by_callers], "^:", lw=width)
    for panel, label in zip(panels, ("requests/s", "p99, ms"), strict=True):
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(comparison.callers, [str(level) for level in comparison.callers])
        panel.set_xlabel("callers")
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=4)
    figure.savefig(path, dpi=130)


def _command(
    callers: Annotated[str, typer.Option(help="Numbers of callers, separated by commas.")] = "1,8,32,128",
    repeats: Annotated[int, typer.Option(min=1, help="Interleaved runs; medians count.")] = 3,
    duration_s: Annotated[float, typer.Option(min=0.2, help="Length of each measurement, seconds.")] = 2.0,
    output: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("reports/race"),
) -> None:
    """Run the race; write report.md, report.json and race.png. Exit 1 if an answer was wrong."""
    console, cores, found = terminal(), Cores.here(), peers()
    missing = [name for name in ("mosec", "LitServe") if not any(peer.startswith(name) for peer in found)]
    comparison = Comparison(
        machine=machine(),
        models=(_MODEL,),
        callers=tuple(int(level) for level in callers.split(",")),
        repeats=repeats,
        pinned=cores.server is not None,
        others=cores_in_use(),
    )
    with tempfile.TemporaryDirectory(prefix="rowwise-race-") as name, ExitStack() as running:
        directory = Path(name)
        file = workload.make(_MODEL, directory)
        is_ready = partial(_answers, body=workload.load(file).bodies[0])
        console.print("Building the model, on the servers' core")
        built_store(directory / "store", [_MODEL], core=cores.server, on_wait=lambda: None)
        commands = {OURS: lambda port: rowwise_command(port, store=directory / "store"), **found}
        servers = {}
        for contender, command in commands.items():
            console.print(f"Starting {contender}")
            server = Server(contender, command, core=cores.server, is_ready=is_ready)
            servers[contender] = running.enter_context(server)
        with DriverProcess(core=cores.driver) as driver:
            for contender, server in servers.items():
                once, _ = driver.send_each_once(server.url, file, callers=8)
                if once.failures:
                    raise RuntimeError(f"{contender}: {once.first_failure}")
            _measure(comparison, driver, servers, file, duration_s=duration_s)
    output.mkdir(parents=True, exist_ok=True)
    text = markdown(comparison, list(commands), missing=missing)
    (output / "report.md").write_text(text)
    (output / "report.json").write_text(json.dumps(comparison.to_json(), indent=1))
    _draw(comparison, list(commands), output / "race.png")
    table = Table("callers", "server", "requests/s", "ours is", "p50 ms", "p99 ms", "CPU us")
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(table.columns) and cells[0].isdigit():
            table.add_row(*cells)
    console.print(table)
    console.print(f"Written: {output / 'report.md'}, report.json and race.png beside it")
    raise typer.Exit(1 if any(comparison.failures()) else 0)


if __name__ == "__main__":
    typer.run(_command)

"""The race with other servers: ``make race RACE=directory``.

The race is a directory with a program that starts each server in turn on the same models and weights, checks its
answers, loads it with wrk and checks again; its README says how the others are installed. Here our server takes part,
and the runs are repeated, one server after the other in each, so that a slow hour of the machine hits all of them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from loadtests.terminal import terminal

__all__ = ["contestants", "summarize"]

_PEERS = "mosec,mosec-b32,mosec-raw,hand-asgi,triton-pyb,fastapi-loop"
_MODELS = ("digits_mlp", "convnet", "lstm")


def contestants(store: Path) -> dict[str, dict[str, Any]]:
    """Return our server in the race's own words, by protocol. ``store`` keeps what was built from run to run."""
    serve = [
        sys.executable,
        *("-m", "rowwise", "serve", "--port", "{port}", "--grpc-port", "0"),
        *("--store", str(store / "{model}"), "--model", "m=loadtests.race_models.{model}:predict"),
        *("--log-level", "warning"),
    ]
    forms = {
        "rowwise": ("v1", "/v1/models/m:predict"),
        "rowwise-v2": ("v2", "/v2/models/m/infer"),
        "rowwise-bin": ("v2bin", "/v2/models/m/infer"),
    }
    return {name: {"cmd": serve, "proto": proto, "path": path} for name, (proto, path) in forms.items()}


def summarize(runs: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the medians over all runs of each server, model and number of callers; failures as they came."""
    cells: defaultdict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    failed: list[dict[str, Any]] = []
    for rows in runs:
        for row in rows:
            if "failed" in row:
                failed.append(row)
            else:
                cells[row["model"], row["peer"], row["conc"]].append(row)
    return [
        {
            "model": model,
            "peer": peer,
            "callers": callers,
            "runs": len(rows),
            **{name: statistics.median(row[name] for row in rows) for name in ("rps", "p50_ms", "p99_ms", "cpu_us")},
            "errors": sum(row["errors"] for row in rows),
        }
        for (model, peer, callers), rows in sorted(cells.items())
    ] + failed


def _run(race: Path, extra: Path, peers: str, models: str, callers: str, secs: int) -> list[dict[str, Any]]:
    python = race / "venv-tf" / "bin" / "python"
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run.json"
        command = [str(python if python.exists() else sys.executable), str(race / "race.py"), "--extra", str(extra)]
        command += ["--peers", peers, "--models", models, "--modes", "pin", "--conc", callers]
        command += ["--secs", str(secs), "--out", str(out)]
        subprocess.run(command, check=True, env={**os.environ, "ROWWISE_CACHE": str(race)})
        rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"]
        return rows


def _command(
    race: Annotated[Path, typer.Option(envvar="RACE", exists=True, file_okay=False, help="The race's directory.")],
    peers: Annotated[str, typer.Option(help="Other servers, by the race's names.")] = _PEERS,
    ours: Annotated[str, typer.Option(help="Ours, by protocol.")] = "rowwise,rowwise-v2,rowwise-bin",
    models: Annotated[str, typer.Option(help="Models, by the race's names.")] = ",".join(_MODELS),
    callers: Annotated[str, typer.Option(help="Numbers of callers.")] = "1,8,32,128",
    repeats: Annotated[int, typer.Option(min=1, help="Runs; medians count.")] = 3,
    secs: Annotated[int, typer.Option(min=1, help="Seconds of each measurement.")] = 3,
    output: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("reports/race"),
) -> None:
    """Run the race with our server in it and print the medians."""
    output.mkdir(parents=True, exist_ok=True)
    extra = output / "contestants.json"
    extra.write_text(json.dumps(contestants((output / "store").absolute()), indent=1))
    every = ",".join(filter(None, (ours, peers)))
    runs = [_run(race.absolute(), extra.absolute(), every, models, callers, secs) for _ in range(repeats)]
    found = summarize(runs)
    (output / "race.json").write_text(json.dumps(found, indent=1))
    table = Table("model", "server", "callers", "requests/s", "p50 ms", "p99 ms", "CPU µs", "errors")
    for row in found:
        if "failed" in row:
            table.add_row(row["model"], row["peer"], "", row["failed"][:60])
            continue
        cells = (f"{row['rps']:,.0f}", f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}", f"{row['cpu_us']:.1f}")
        table.add_row(row["model"], row["peer"], str(row["callers"]), *cells, str(row["errors"]))
    terminal().print(table)


if __name__ == "__main__":
    typer.run(_command)

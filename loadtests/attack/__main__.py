"""``python -m loadtests.attack``: start a server, attack it, and say how each attack was met."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from loadtests import workload
from loadtests.attack import archives, control, graphs, leaks, requests, sources, tenancy  # noqa: F401 - they add cases
from loadtests.attack.case import Case, Harm, cases
from loadtests.attack.target import Secrets, Target
from loadtests.attack.watch import Bystander, Seen
from loadtests.contenders import Server, rowwise_command
from loadtests.driver import percentile
from loadtests.ports import free_port
from loadtests.terminal import terminal

__all__ = ["Met", "carry_out"]

#: Seconds of quiet at the start, and between attacks.
_QUIET_S, _REST_S = 10.0, 0.5
_BUILD_TIMEOUT_S = 60
_P99_LIMIT = 1.2


@dataclass(frozen=True, slots=True)
class Met:
    """How an attack was met, or what it did."""

    area: str
    name: str
    how: str
    harm: str
    took_s: float


def carry_out(case: Case, target: Target) -> Met:
    """Attack, and see whether the server still stands."""
    began_s = time.monotonic()
    how = harm = ""
    try:
        how = case.run(target)
        alive = target.ask("GET", "/v2/health/live")
        if alive.status_code != 200 or target.server.returncode is not None:
            harm = "the server does not live"
    except Harm as error:
        harm = str(error)
    except Exception as error:  # noqa: BLE001 - an attack that can't be judged is one that was not met
        harm = f"{type(error).__name__}: {error}"
    return Met(case.area, case.name, how, harm, time.monotonic() - began_s)


def _make_token(file: Path, name: str, *options: str) -> str:
    command = [sys.executable, "-m", "rowwise", "token", "make", name, "--file", str(file), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]


def _target(directory: Path, stack: ExitStack) -> Target:
    hidden, shown, store = directory / "hidden", directory / "shown", directory / "store"
    hidden.mkdir(mode=0o700)
    shown.mkdir(mode=0o755)
    known = Secrets(
        in_file=secrets.token_hex(16),
        file=hidden / "secret",
        in_environment=secrets.token_hex(16),
        untouched=shown / "untouched",
        token=secrets.token_hex(16),
    )
    known.file.write_text(known.in_file)
    known.file.chmod(0o600)
    known.untouched.write_text("as it was")
    tokens = directory / "tokens.toml"
    registrar = _make_token(tokens, "registrar", "--scope", "manage")
    caller = _make_token(tokens, "caller", "--scope", "predict")
    neighbour = _make_token(tokens, "neighbour", "--scope", "predict", "--scope", "read", "--model", "theirs-*")
    os.environ["ROWWISE_TOKEN"] = known.token
    os.environ["DATABASE_PASSWORD"] = known.in_environment
    # With all the time that it needs: attackers' builds have less.
    with Server("rowwise serve", lambda port: rowwise_command(port, store=store, models=["digits"]), timeout_s=900.0):
        pass
    grpc_port = free_port()
    server = stack.enter_context(
        Server(
            "rowwise serve",
            lambda port: [
                *rowwise_command(port, store=store),
                *("--grpc-port", str(grpc_port), "--allow-source", "--tokens-file", str(tokens)),
                *("--audit-log", str(directory / "audit.jsonl"), "--build-timeout-s", str(_BUILD_TIMEOUT_S)),
            ],
            timeout_s=600.0,
        )
    )
    return Target(
        server=server,
        grpc=f"127.0.0.1:{grpc_port}",
        secrets=known,
        registrar=registrar,
        caller=caller,
        neighbour=neighbour,
        store=store,
    )


def _slower(seen: Seen, quiet: list[tuple[float, float]], attacked: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the bystander's p99 in quiet, and the median over the attacks of the p99 in each, milliseconds."""
    each = sorted(value for span in attacked if (value := seen.p99_ms([span])) == value)
    return seen.p99_ms(quiet), percentile(each, 0.5) if each else float("nan")


def _command(
    only: Annotated[str, typer.Option(help="Attacks whose area or name matches this regular expression.")] = "",
    p99_limit: Annotated[
        float, typer.Option(help="How many times its p99 in quiet a bystander's may be, in the median attack.")
    ] = _P99_LIMIT,
    output: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("reports/attack"),
) -> None:
    """Attack a server. Exit 1 if one attack did harm, or somebody else was answered wrongly, late or not at all."""
    console = terminal()
    # Those that search all answers come last.
    in_order = sorted(cases(), key=lambda case: case.area == leaks.AREA)
    chosen = [case for case in in_order if re.search(only, f"{case.area}: {case.name}")]
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    met: list[Met] = []
    quiet: list[tuple[float, float]] = []
    attacked: list[tuple[float, float]] = []
    with (
        tempfile.TemporaryDirectory(prefix="rowwise-attack-") as name,
        ExitStack() as stack,
        Progress(*columns, console=console) as progress,
    ):
        directory = Path(name)
        # The jail's user has to reach what it may read.
        directory.chmod(0o755)
        task = progress.add_task("starting a server", total=len(chosen))
        target = _target(directory, stack)
        right = workload.make("digits", directory)
        with Bystander(target.url, target.caller, right) as bystander:
            began_s = time.monotonic()
            time.sleep(_QUIET_S)
            quiet.append((began_s, time.monotonic()))
            for case in chosen:
                progress.update(task, description=case.name)
                began_s = time.monotonic()
                met.append(carry_out(case, target))
                attacked.append((began_s, time.monotonic()))
                if met[-1].harm:
                    progress.console.print(f"{case.area}: {case.name}: {met[-1].harm}", style="red", markup=False)
                time.sleep(_REST_S)
                progress.advance(task)
    before_ms, during_ms = _slower(bystander.seen, quiet, attacked)
    faults = [f"{each.area}: {each.name}: {each.harm}" for each in met if each.harm]
    faults += [f"a bystander: {fault}" for fault in bystander.seen.faults[:5]]
    if not during_ms <= p99_limit * before_ms:
        faults.append(f"a bystander's p99 was {during_ms:.1f} ms in the median attack, {before_ms:.1f} ms in quiet")
    table = Table(title="How each attack was met", title_justify="left")
    for column in ("area", "attack", "how it was met", "s"):
        table.add_column(column, justify="right" if column == "s" else "left", overflow="fold")
    for each in met:
        table.add_row(
            each.area, each.name, f"[red]{each.harm[:160]}[/red]" if each.harm else each.how, f"{each.took_s:.1f}"
        )
    console.print(table)
    console.print(
        f"{len(met)} attacks, {len(faults)} faults. A bystander got {len(bystander.seen.answers):,} answers, "
        f"{len(bystander.seen.faults)} of them wrong; p99 {before_ms:.1f} ms in quiet, {during_ms:.1f} ms in the "
        f"median attack ({during_ms / before_ms:.2f} times)"
    )
    for fault in faults:
        console.print(fault, style="red", markup=False)
    output.mkdir(parents=True, exist_ok=True)
    report = {"faults": faults, "p99_ms": {"quiet": before_ms, "attacked": during_ms}, "met": list(map(asdict, met))}
    (output / "report.json").write_text(json.dumps(report, indent=1))
    console.print(f"Written: {output / 'report.json'}")
    raise typer.Exit(1 if faults else 0)


if __name__ == "__main__":
    typer.run(_command)

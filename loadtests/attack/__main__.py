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
from loadtests.attack.watch import Bystander, Span, Stretch, slowdowns
from loadtests.contenders import Server, rowwise_command
from loadtests.driver import percentile
from loadtests.ports import free_port
from loadtests.terminal import terminal
from server.tensorflow_notices import load_tensorflow, quieten

__all__ = ["Met", "carry_out"]

#: Seconds of attacks, at the least, after which it is quiet for as long, at the most for the longest; and those after
#: an attack that are neither.
_STRETCH_S, _LONGEST_QUIET_S, _REST_S = 2.0, 6.0, 0.3
_BUILD_TIMEOUT_S = 60
#: Attackers have processors of their own, elsewhere.
_ATTACKERS_NICENESS = 10
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


class Turns:
    """Attacks and quiet in turn. ``stretches`` are those that are over."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self._attacked: list[Span] = []
        self._names: list[str] = []
        self._before = _span(_STRETCH_S)

    def attacked(self, name: str, began_s: float, *, is_last: bool) -> None:
        """Note an attack that is over now, and be quiet if that makes a stretch."""
        self._attacked.append((began_s, time.monotonic()))
        self._names.append(name)
        time.sleep(_REST_S)
        took_s = sum(end - begin for begin, end in self._attacked)
        if took_s >= _STRETCH_S or is_last:
            after = _span(min(max(took_s, _STRETCH_S), _LONGEST_QUIET_S))
            self.stretches.append(Stretch(tuple(self._attacked), self._before, after, tuple(self._names)))
            self._attacked, self._names, self._before = [], [], after


def _span(seconds: float) -> Span:
    began_s = time.monotonic()
    time.sleep(seconds)
    return began_s, time.monotonic()


def _command(
    only: Annotated[str, typer.Option(help="Attacks whose area or name matches this regular expression.")] = "",
    p99_limit: Annotated[
        float,
        typer.Option(help="How many times its p99 in quiet a bystander's may be, in the median stretch of attacks."),
    ] = _P99_LIMIT,
    output: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("reports/attack"),
) -> None:
    """Attack a server. Exit 1 if one attack did harm, or somebody else was answered wrongly, late or not at all."""
    console = terminal()
    quieten()
    load_tensorflow()
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
            os.nice(_ATTACKERS_NICENESS)
            turns = Turns()
            for case in chosen:
                progress.update(task, description=case.name)
                began_s = time.monotonic()
                met.append(carry_out(case, target))
                turns.attacked(f"{case.area}: {case.name}", began_s, is_last=case is chosen[-1])
                if met[-1].harm:
                    progress.console.print(f"{case.area}: {case.name}: {met[-1].harm}", style="red", markup=False)
                progress.advance(task)
    seen, stretches = bystander.seen, turns.stretches
    of_stretches = slowdowns(seen, stretches)
    times = sorted(of_stretches)
    slower = percentile(times, 0.5)
    quiet_ms = percentile(sorted(seen.p99_ms((each.before, each.after)) for each in stretches), 0.5)
    # What the same comparison gives where nobody attacks.
    noise = sorted(seen.p99_ms([each.after]) / seen.p99_ms([each.before]) for each in stretches)
    faults = [f"{each.area}: {each.name}: {each.harm}" for each in met if each.harm]
    faults += [f"a bystander: {fault}" for fault in bystander.seen.faults[:5]]
    if not slower <= p99_limit:
        faults.append(f"a bystander's p99 was {slower:.2f} times that in quiet, in the median stretch of attacks")
    table = Table(title="How each attack was met", title_justify="left")
    for column in ("area", "attack", "how it was met", "s"):
        table.add_column(column, justify="right" if column == "s" else "left", overflow="fold")
    for each in met:
        table.add_row(
            each.area, each.name, f"[red]{each.harm[:160]}[/red]" if each.harm else each.how, f"{each.took_s:.1f}"
        )
    console.print(table)
    console.print(
        f"{len(met)} attacks, {len(faults)} faults. A bystander got {len(seen.answers):,} answers, {len(seen.faults)} "
        f"of them wrong. Its p99 was {quiet_ms:.1f} ms in quiet, and {slower:.2f} times that in the median of "
        f"{len(stretches)} stretches of attacks (quartiles {_quartiles(times)}; quiet against quiet "
        f"{_quartiles(noise)})"
    )
    for fault in faults:
        console.print(fault, style="red", markup=False)
    output.mkdir(parents=True, exist_ok=True)
    p99 = {"quiet_ms": quiet_ms, "times": times, "times_of_quiet": noise}
    by_attacks = [{"attacks": each.attacks, "times": n} for each, n in zip(stretches, of_stretches, strict=True)]
    report = {"faults": faults, "p99": p99, "stretches": by_attacks, "met": list(map(asdict, met))}
    (output / "report.json").write_text(json.dumps(report, indent=1))
    console.print(f"Written: {output / 'report.json'}")
    raise typer.Exit(1 if faults else 0)


def _quartiles(values: list[float]) -> str:
    return f"{percentile(values, 0.25):.2f} to {percentile(values, 0.75):.2f}"


if __name__ == "__main__":
    typer.run(_command)

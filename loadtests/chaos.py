"""``make chaos``: a server under load, one fault after the other, and an account of every request that was sent."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from loadtests.contenders import Server, rowwise_command
from loadtests.faults import SCENARIOS, Chaos, Scenario, register
from loadtests.ledger import End, Ledger
from loadtests.terminal import terminal

__all__ = ["Outcome", "verdict"]

#: Ends that need no fault.
_ALWAYS = frozenset({End.RIGHT, End.BAD_EXAMPLE})
_COLUMNS = (End.RIGHT, End.BAD_EXAMPLE, End.LATER, End.BROKEN, End.LEFT, End.UNEXPLAINED)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a scenario came to: its account, a remark, and what is wrong; nothing is if ``faults`` is empty."""

    name: str
    n_sent: int
    ends: dict[str, int]
    remark: str
    faults: tuple[str, ...]


def verdict(scenario: Scenario, ledger: Ledger, remark: str, failure: str | None = None) -> Outcome:
    """Judge an account: every request in one place, and in one that the scenario explains."""
    faults = [] if failure is None else [failure]
    if ledger.difference():
        faults.append(f"{ledger.difference():+} requests were sent and have no end")
    for end, count in ledger.ends.items():
        if end is not End.UNEXPLAINED and end not in _ALWAYS | scenario.may:
            faults.append(f"{count} requests ended as {end.value!r}, which nothing explains")
    if not ledger.ends[End.RIGHT]:
        faults.append("no request was answered right")
    n_unexplained = ledger.ends[End.UNEXPLAINED]
    if n_unexplained:
        faults.append(f"{n_unexplained} requests can't be explained: {'; '.join(ledger.unexplained[:3])}")
    return Outcome(
        name=scenario.name,
        n_sent=ledger.n_sent,
        ends={end.value: ledger.ends[end] for end in _COLUMNS},
        remark=remark,
        faults=tuple(faults),
    )


def carry_out(scenario: Scenario, server: Server, *, store: Path, seconds: float) -> Outcome:
    """Do what a scenario does to a server that runs, and judge it."""
    ledger = Ledger()
    chaos = Chaos(server, ledger, store=store, seconds=seconds)
    try:
        remark, failure = scenario.run(chaos), None
    except (AssertionError, TimeoutError, httpx.HTTPError, RuntimeError) as error:
        remark, failure = "", f"{type(error).__name__}: {error}\n{server.log()}"
    return verdict(scenario, ledger, remark, failure)


def _command_of(store: Path) -> Callable[[int], list[str]]:
    return lambda port: [
        *rowwise_command(port, store=store),
        *("--http-workers", "2", "--import-package", "loadtests"),
    ]


def _small_disk(directory: Path, mib: int, stack: ExitStack) -> bool:
    """Mount a file system of that size, until the stack is left. False where that is not permitted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "rowwise-chaos", str(directory)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        return False
    stack.callback(subprocess.run, ["umount", "--lazy", str(directory)], check=False)
    return True


@contextmanager
def _built(store: Path, step: Callable[[str], None]) -> Iterator[Server]:
    """Start a server with two versions of one model and a model that refuses some examples."""
    with Server("rowwise serve", _command_of(store), timeout_s=240.0) as server:
        for name, function in (("vector", "tripled"), ("vector", "negated"), ("shares", "shares")):
            step(f"building {name}: {function}")
            register(server.url, name, function)
        yield server


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="Every request that was sent, by how it ended", title_justify="left")
    table.add_column("fault")
    for column in ("sent", *(end.value for end in _COLUMNS)):
        table.add_column(column, justify="right")
    table.add_column("")
    for outcome in outcomes:
        counts = [f"{outcome.ends[end.value]:,}" for end in _COLUMNS]
        table.add_row(outcome.name, f"{outcome.n_sent:,}", *counts, outcome.remark or "[red]failed[/red]")
    return table


def _command(
    only: Annotated[str, typer.Option(help="Scenarios whose name holds this.")] = "",
    seconds: Annotated[float, typer.Option(min=0.5, help="How long those last that have no end of their own.")] = 10.0,
    output: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("reports/chaos"),
) -> None:
    """Fault after fault, under load. Exit 1 if a request can't be explained or the server does not recover."""
    console = terminal()
    chosen = [scenario for scenario in SCENARIOS if only in scenario.name]
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="rowwise-chaos-") as name, Progress(*columns, console=console) as progress:
        store = Path(name) / "store"
        task = progress.add_task("", total=len(chosen) + 3)

        def step(what: str) -> None:
            progress.update(task, description=what, advance=1)

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            progress.advance(task)
            for fault in outcome.faults:
                progress.console.print(f"{outcome.name}: {fault}", markup=False, highlight=False)

        with _built(store, step) as server:
            for scenario in chosen:
                if not scenario.has_own_server:
                    progress.update(task, description=scenario.name)
                    done(carry_out(scenario, server, store=store, seconds=seconds))
        for scenario in chosen:
            if scenario.has_own_server:
                progress.update(task, description=scenario.name)
                copy = Path(name) / f"store-{len(outcomes)}"
                copy.mkdir()
                with ExitStack() as stack:
                    if scenario.disk_mib is not None and not _small_disk(copy, scenario.disk_mib, stack):
                        console.print(f"{scenario.name}: left out, a file system can't be mounted here")
                        continue
                    shutil.copytree(store, copy, dirs_exist_ok=True)
                    own = stack.enter_context(Server("rowwise serve", _command_of(copy), timeout_s=240.0))
                    done(carry_out(scenario, own, store=copy, seconds=seconds))
    console.print(_table(outcomes))
    output.mkdir(parents=True, exist_ok=True)
    (output / "report.json").write_text(json.dumps(list(map(asdict, outcomes)), indent=1))
    console.print(f"Written: {output / 'report.json'}")
    raise typer.Exit(1 if any(outcome.faults for outcome in outcomes) else 0)


if __name__ == "__main__":
    typer.run(_command)

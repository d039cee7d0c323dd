"""``make fuzz``: the core, and the engine's staging, under random requests and faults, in virtual time."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tests.fuzz.program import Program, draw
from tests.fuzz.shrink import shrink
from tests.fuzz.tally import Tally, run_seed, runner, sentence

#: Moves of a run. Long enough for queues to build up, short enough that a failure is seen soon and is small.
RUN_MOVES = 1_000
_SEEDS = 1 << 31
#: Of the steps that are asked for each level does one in so many: a million of the core's, and a million rows through
#: the engine's staging.
_FEWER = {"core": 1, "engine": 2}


def replay(level: str, seed: int, n_moves: int, console: Console) -> None:
    """Show the smallest program that still breaks what the seed's does."""

    def breaks(program: Program) -> bool:
        try:
            runner(level)(program)
        except Exception:  # noqa: BLE001
            return True
        return False

    with console.status(f"Making the program of seed {seed} smaller ..."):
        small = shrink(draw(seed, n_moves), breaks)
    console.print(f"Of {n_moves:,} moves these {len(small.moves)} still break a promise, with {small.setting}:")
    for move in small.moves:
        console.print(f"  {move}", markup=False, highlight=False)
    try:
        runner(level)(small)
    except Exception as error:  # noqa: BLE001
        console.print(sentence(error), markup=False)


def _all(level: str, seeds: range, n_processes: int, n_moves: int) -> Iterator[Tally]:
    if n_processes == 1:
        for seed in seeds:
            yield run_seed(level, seed, n_moves)
        return
    # Spawned: nothing that this process has loaded matters to a run.
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
        n_seeds = len(seeds)
        yield from pool.map(run_seed, [level] * n_seeds, seeds, [n_moves] * n_seeds, chunksize=4)


def _report(level: str, total: Tally, seconds: float) -> Table:
    table = Table(
        title=f"{level}: {total.n_moves:,} steps in {total.n_runs:,} runs, {seconds:.0f} s", title_justify="left"
    )
    table.add_column("how requests ended")
    table.add_column("", justify="right")
    for end, count in sorted(total.ends.items(), key=lambda entry: -entry[1]):
        table.add_row(end, f"{count:,}")
    table.add_section()
    table.add_row("rows answered, all right", f"{total.n_rows_right:,}")
    table.add_row("longest wait of a model, of what is allowed", f"{total.hunger:.0%}")
    table.add_row("runs that broke a promise", f"{len(total.broken):,}")
    return table


def _command(
    seed: Annotated[int | None, typer.Option(help="First seed. With it and no --steps: that seed's run alone.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Moves in all; 1,000,000 if not said.")] = None,
    level: Annotated[str, typer.Option(help="core, engine (through the engine's staging) or all.")] = "all",
    run_moves: Annotated[int, typer.Option(min=1, help="Moves of each run.")] = RUN_MOVES,
    processes: Annotated[int, typer.Option(min=1, help="Processes.")] = len(os.sched_getaffinity(0)),
) -> None:
    """Run random programs against the core and check everything that it promises. Exit 1 if a promise was broken."""
    console = Console()
    if seed is None:
        seed, n_steps = random.SystemRandom().randrange(_SEEDS), steps or 1_000_000
    else:
        n_steps = steps or run_moves
    n_runs = -(-n_steps // run_moves)
    console.print(
        f"Seeds {seed} to {seed + n_runs - 1}, {run_moves:,} moves each. Again: make fuzz SEED={seed} STEPS={n_steps}"
    )
    levels = ("core", "engine") if level == "all" else (level,)
    is_right = True
    for name in levels:
        total, began_s = Tally(), time.monotonic()
        seeds = range(seed, seed + -(-n_runs // _FEWER[name]))
        columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=len(seeds) * run_moves)
            for tally in _all(name, seeds, min(processes, len(seeds)), run_moves):
                total.add(tally)
                progress.update(task, advance=tally.n_moves)
                for broken, why in tally.broken:
                    progress.console.print(f"seed {broken}: {why}", markup=False, highlight=False)
        console.print(_report(name, total, time.monotonic() - began_s))
        if total.broken:
            is_right = False
            first = total.broken[0][0]
            replay(name, first, run_moves, console)
            console.print(f"Again: make fuzz SEED={first} ARGS='--level {name} --run-moves {run_moves}'")
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    typer.run(_command)

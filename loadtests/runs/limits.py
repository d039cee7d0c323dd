"""What each engine can do at most: ``python -m loadtests.runs.limits``, against a process that answers at once.

Prints requests a second, and those divided by the share of a core that the engine used, which other work on the machine
changes less.
"""

from __future__ import annotations

import statistics
from typing import Annotated

import typer
from rich.table import Table

from loadtests.contenders import Cores, Server, pinned, responder_command
from loadtests.runs.choice import Engine
from loadtests.runs.crew import Crew
from loadtests.runs.figures import figures
from loadtests.runs.load import Load
from loadtests.runs.questions import Question, Questions
from loadtests.terminal import terminal

__all__: list[str] = []

_ENGINES: tuple[Engine, ...] = ("locust", "driver")


def _command(
    callers: Annotated[int, typer.Option(min=1)] = 16,
    duration_s: Annotated[float, typer.Option(min=0.5)] = 3.0,
    repeats: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Measure both engines in turn."""
    body = b'{"instances":[[0.1,0.2]]}'
    questions = Questions(model="m", path="/v1/models/m:predict", questions=(Question(body=body),))
    cores = Cores.here()
    rates: dict[Engine, list[float]] = {engine: [] for engine in _ENGINES}
    for_a_core: dict[Engine, list[float]] = {engine: [] for engine in _ENGINES}
    with Server("responder", responder_command, core=cores.server) as server, pinned(cores.driver):
        crew = Crew(server.url, [questions])
        for _ in range(repeats):
            for engine in _ENGINES:
                seen = crew.run(Load(callers=callers, duration_s=duration_s, warmup_s=0.5), engine=engine)
                rate = figures(seen).requests_per_s
                rates[engine].append(rate)
                for_a_core[engine].append(rate / seen.busy)
    table = Table("engine", "requests/s", "for a whole core", title=f"{callers} callers", title_justify="left")
    for engine in _ENGINES:
        table.add_row(
            engine, f"{statistics.median(rates[engine]):,.0f}", f"{statistics.median(for_a_core[engine]):,.0f}"
        )
    terminal().print(table)


if __name__ == "__main__":
    typer.run(_command)

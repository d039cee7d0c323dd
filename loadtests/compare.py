"""``make load``: Rowwise, Rowwise limited to bucket 1 and the hand-made loop, in one run, interleaved.

All servers are up at once, on one core; only one of them has work at any time. The driver has the other core. A
round of the contenders takes a few seconds, so what the machine does besides hits all of them alike.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from loadtests import report, workload, wrk
from loadtests.comparison import BATCHED, CONTENDERS, LIMITED, LOOPED, Comparison, Run
from loadtests.contenders import Cores, Server, cores_in_use, looped_command, pinned, responder_command, rowwise_command
from loadtests.driver_process import DriverProcess
from loadtests.terminal import terminal

__all__ = ["built_store", "machine", "measure", "started"]

#: Building a model measures it at every size; five models on one core take minutes.
_BUILD_TIMEOUT_S = 1800.0

Step = Callable[[str], None]


def machine() -> dict[str, str]:
    """Return what figures depend on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return {
        "CPU": f"{model} ({len(os.sched_getaffinity(0))} cores)",
        "Python": platform.python_version(),
        "TensorFlow": version("tensorflow"),
    }


def built_store(store: Path, models: Sequence[str], *, core: int | None, on_wait: Callable[[], None]) -> None:
    """Build ``models`` into a store by starting a server on it once, on the core that they will be served from.

    What a batch size costs, and so which are chosen, is measured where it will count.
    """
    with Server(
        "rowwise serve (building)",
        lambda port: rowwise_command(port, store=store, models=models),
        core=core,
        timeout_s=_BUILD_TIMEOUT_S,
        on_wait=on_wait,
    ):
        pass


@contextmanager
def started(
    store: Path, models: Sequence[str], *, core: int | None, on_wait: Callable[[], None]
) -> Iterator[dict[str, Server]]:
    """Start the contenders, Rowwise's on copies of a built store; stop them at the end."""
    copy = store.with_name(store.name + "-limited")
    shutil.copytree(store, copy)
    commands: dict[str, Callable[[int], list[str]]] = {
        BATCHED: lambda port: rowwise_command(port, store=store, models=models),
        LIMITED: lambda port: rowwise_command(port, store=copy, models=models, batch_limit=1),
        LOOPED: lambda port: looped_command(port, models=models),
    }
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(Server(name, command, core=core, on_wait=on_wait))
            for name, command in commands.items()
        }


def measure(
    driver: DriverProcess,
    servers: dict[str, Server],
    comparison: Comparison,
    files: dict[str, Path],
    *,
    duration_s: float,
    on_step: Step,
) -> None:
    """Run every cell of the comparison, contenders innermost, and add the runs to it."""
    for model, repeat, callers in itertools.product(comparison.models, range(comparison.repeats), comparison.callers):
        for contender, server in servers.items():
            on_step(f"{model}, {callers} callers: {contender}")
            before = server.cpu_s()
            measured = driver.drive(server.url, files[model], callers=callers, warmup_s=0.3, duration_s=duration_s)
            # The warm-up's requests are not among n_answers, so its share of the time is taken off.
            spent = (server.cpu_s() - before) * measured.duration_s / (measured.duration_s + 0.3)
            comparison.runs.append(
                Run(
                    model=model,
                    contender=contender,
                    callers=callers,
                    repeat=repeat,
                    server_us=spent / max(1, measured.n_answers) * 1e6,
                    measured=measured,
                )
            )


def _capacity(driver: DriverProcess, comparison: Comparison, file: Path, *, core: int | None, on_step: Step) -> None:
    """Measure the driver against a process that answers everything with the right answer to the one request sent."""
    only = workload.load(file)
    answer = json.dumps({"predictions": [only.answers[0]]})
    one = workload.Workload(model=only.model, bodies=only.bodies[:1], answers=only.answers[:1])
    path = file.with_name("capacity.json")
    path.write_bytes(one.to_json())

    def command(port: int) -> list[str]:
        return [*responder_command(port), "--body", answer]

    with Server("responder", command, core=core) as server:
        for callers in comparison.callers:
            on_step(f"the driver itself, {callers} callers")
            comparison.capacity[callers] = driver.drive(server.url, path, callers=callers)


def _second_opinion(
    servers: dict[str, Server], comparison: Comparison, file: Path, *, core: int | None, on_step: Step
) -> None:
    for contender, callers in itertools.product(CONTENDERS, comparison.callers):
        on_step(f"wrk, {callers} callers: {contender}")
        with pinned(core):
            rate = wrk.requests_per_s(servers[contender].url, workload.load(file), callers=callers)
        comparison.wrk.append((contender, callers, rate))


def _progress(console: Console) -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console)


def _command(
    models: Annotated[str, typer.Option(help="Models to compare, separated by commas.")] = ",".join(workload.MODELS),
    callers: Annotated[str, typer.Option(help="Numbers of callers, separated by commas.")] = "1,8,32,128",
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each cell; medians are reported.")] = 3,
    duration_s: Annotated[float, typer.Option(min=0.1, help="Length of one run, after its warm-up.")] = 1.0,
    output: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("reports/load"),
    *,
    with_wrk: Annotated[bool, typer.Option("--wrk/--no-wrk", help="Let wrk confirm, where installed.")] = True,
) -> None:
    """Compare Rowwise with both baselines; write report.md, report.json and report.png."""
    console, cores = terminal(), Cores.here()
    comparison = Comparison(
        machine=machine(),
        models=tuple(models.split(",")),
        callers=tuple(int(level) for level in callers.split(",")),
        repeats=repeats,
        pinned=cores.server is not None,
        others=cores_in_use(),
    )
    with_wrk = with_wrk and wrk.available()
    n_cells = len(comparison.callers) * len(CONTENDERS)
    n_steps = len(comparison.models) * (1 + n_cells * repeats) + 2 + len(comparison.callers) + n_cells * with_wrk
    with tempfile.TemporaryDirectory(prefix="rowwise-load-") as name, _progress(console) as progress:
        directory = Path(name)
        task = progress.add_task("", total=n_steps)

        def step(what: str) -> None:
            progress.update(task, description=what, advance=1)

        files = {}
        for model in comparison.models:
            step(f"{model}: what the right answers are")
            files[model] = workload.make(model, directory)
        first = files[comparison.models[0]]
        step("building the models, on the server's core")
        built_store(directory / "store", comparison.models, core=cores.server, on_wait=progress.refresh)
        with DriverProcess(core=cores.driver) as driver:
            _capacity(driver, comparison, first, core=cores.server, on_step=step)
            step("starting the contenders")
            with started(
                directory / "store", comparison.models, core=cores.server, on_wait=progress.refresh
            ) as servers:
                measure(driver, servers, comparison, files, duration_s=duration_s, on_step=step)
                if with_wrk:
                    _second_opinion(servers, comparison, first, core=cores.driver, on_step=step)
        progress.update(task, description="done", completed=n_steps)
    output.mkdir(parents=True, exist_ok=True)
    (output / "report.json").write_text(json.dumps(comparison.to_json(), indent=1))
    report.draw(comparison, output / "report.png")
    text = report.markdown(comparison, picture="report.png")
    (output / "report.md").write_text(text)
    console.print(Markdown(text))
    console.print(f"Written: {output / 'report.md'}, report.json and report.png beside it")
    raise typer.Exit(1 if any(comparison.failures()) else 0)


if __name__ == "__main__":
    typer.run(_command)

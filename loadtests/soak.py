"""``make soak``: the real server under mixed load for a long time. Nothing may grow, and every answer is checked.

What is at work: the load driver on models of fixed and of variable length; callers who hang up, who send bad examples,
who are slow; and a model that is registered, asked and deleted, over and over. What is looked at, of the processes that
serve: resident memory, open files, threads, rows that wait, and what TensorFlow compiles.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from loadtests import workload
from loadtests.contenders import Server, rowwise_command
from loadtests.driver_process import DriverProcess
from loadtests.faults import register
from loadtests.growth import Sample, draw, findings
from loadtests.ledger import Callers, End, Ledger
from loadtests.processes import usage
from loadtests.small_models import question
from loadtests.terminal import terminal

__all__ = ["Soak"]

#: One of fixed length, one of variable length.
MODELS = "digits,lstm"
#: Seconds of one stretch of the driver's load.
_STRETCH_S = 5.0
_CALLERS = 4


class Soak:
    """The load, in threads, and what it has found. Errors of a thread are kept in ``faults``."""

    def __init__(self, url: str, directory: Path, models: Sequence[str]) -> None:
        self._url = url
        self._models = models
        self._directory = directory
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self.ledger = Ledger()
        self.n_checked = 0
        self.n_cycles = 0
        self.faults: list[str] = []

    def start(self) -> None:
        """Begin to send."""
        register(self._url, "shares", "shares")
        for model in self._models:
            self._begin(lambda model=model: self._drive(model))  # type: ignore[misc]
        self._begin(self._disturb)
        self._begin(self._register_and_delete)

    def stop(self) -> None:
        """End the load and wait for what is under way."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _begin(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - it is what the soak has found
                self.faults.append(f"{type(error).__name__}: {error}")

        self._threads.append(threading.Thread(target=guarded, daemon=True))
        self._threads[-1].start()

    def _drive(self, model: str) -> None:
        path = self._directory / f"{model}.json"
        with DriverProcess() as driver:
            while not self._stopped.is_set():
                measured = driver.drive(self._url, path, callers=_CALLERS, warmup_s=0.0, duration_s=_STRETCH_S)
                self.n_checked += measured.n_answers
                if measured.failures:
                    self.faults.append(f"{model}: {measured.failures}, the first: {measured.first_failure}")

    def _disturb(self) -> None:
        with Callers(
            self._url,
            self.ledger,
            lambda number: question(number, "shares", "shares"),
            n=_CALLERS,
            leaving=0.2,
            slow=0.1,
            pause_s=0.02,
        ):
            self._stopped.wait()

    def _register_and_delete(self) -> None:
        while not self._stopped.is_set():
            register(self._url, "passing", "tripled")
            with Callers(self._url, self.ledger, lambda number: question(number, "passing", "tripled"), n=1):
                self._stopped.wait(1.0)
            answer = httpx.delete(f"{self._url}/v1/models/passing", timeout=120)
            if answer.status_code != 204:
                raise RuntimeError(f"deleting was answered {answer.status_code}: {answer.text[:300]}")
            self.n_cycles += 1


def _sample(server: Server, soak: Soak, began_s: float) -> Sample:
    held = usage(server.pid)
    text = httpx.get(server.url + "/metrics", timeout=60).text
    return Sample(
        at_s=time.monotonic() - began_s,
        rss_mb=held.rss_mb,
        n_fds=held.n_fds,
        n_threads=held.n_threads,
        n_waiting=_sum(text, "rowwise_queue_rows"),
        n_compiled=_sum(text, "rowwise_compiled_after_ready"),
        traced_s=_sum(text, "rowwise_traced_seconds"),
        n_cycles=soak.n_cycles,
        n_answers=soak.n_checked + soak.ledger.ends[End.RIGHT],
    )


def _sum(text: str, series: str) -> float:
    """Return the sum of a series over its labels."""
    lines = [line for line in text.splitlines() if line.startswith((series + "{", series + " "))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def _judge(soak: Soak, samples: list[Sample]) -> tuple[Table, list[str]]:
    found = findings(samples)
    faults = [*soak.faults, *(finding.sentence for finding in found if not finding.is_fit)]
    ledger = soak.ledger
    if ledger.difference():
        faults.append(f"{ledger.difference():+} requests have no end")
    faults += [
        f"{ledger.ends[end]} requests: {end.value}; {'; '.join(ledger.unexplained[:3])}"
        for end in (End.UNEXPLAINED, End.BROKEN)
        if ledger.ends[end]
    ]
    table = Table(title=f"{samples[-1].at_s / 60:.1f} minutes", title_justify="left")
    for column in ("", "after warm-up", "at the end", "growth", "allowed"):
        table.add_column(column, justify="left" if not column else "right")
    for finding in found:
        table.add_row(
            finding.what,
            f"{finding.first:,.1f}",
            f"{finding.last:,.1f}",
            f"{finding.growth:+,.1f}" + ("" if finding.is_fit else " [red]too much[/red]"),
            f"{finding.allowed:,.1f}",
        )
    table.add_section()
    table.add_row("answers checked", "", f"{samples[-1].n_answers:,}")
    table.add_row("register, ask, delete", "", f"{soak.n_cycles:,}")
    for end, count in sorted(ledger.ends.items()):
        table.add_row(f"disturbers: {end.value}", "", f"{count:,}")
    return table, faults


def _write(path: Path, samples: list[Sample], faults: list[str]) -> None:
    path.write_text(json.dumps({"faults": faults, "samples": list(map(asdict, samples))}, indent=1))


def _command(
    minutes: Annotated[float, typer.Option(min=0.5, help="How long.")] = 30.0,
    every_s: Annotated[float, typer.Option(min=0.1, help="Seconds between two samples.")] = 2.0,
    models: Annotated[str, typer.Option(help="Models under the driver's load, separated by commas.")] = MODELS,
    http_workers: Annotated[int, typer.Option(min=0, help="The server's --http-workers.")] = 0,
    build_niceness: Annotated[int, typer.Option(min=0, max=19, help="The server's --build-niceness.")] = 10,
    output: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("reports/soak"),
) -> None:
    """Load a server for a long time. Exit 1 if something grows or an answer is wrong."""
    console, chosen = terminal(), tuple(models.split(","))
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="rowwise-soak-") as name, ExitStack() as stack:
        directory = Path(name)
        progress = stack.enter_context(Progress(*columns, console=console))
        task = progress.add_task("the right answers", total=60.0 * minutes)
        for model in chosen:
            workload.make(model, directory)
        progress.update(task, description="building the models")
        server = stack.enter_context(
            Server(
                "rowwise serve",
                lambda port: [
                    *rowwise_command(port, store=directory / "store", models=chosen),
                    *("--import-package", "loadtests", "--http-workers", str(http_workers)),
                    *("--build-niceness", str(build_niceness), "--build-timeout-s", "1800"),
                ],
                timeout_s=1800.0,
                on_wait=progress.refresh,
            )
        )
        soak = Soak(server.url, directory, chosen)
        progress.update(task, description="under load")
        soak.start()
        began_s = time.monotonic()
        while time.monotonic() - began_s < 60.0 * minutes and not soak.faults:
            samples.append(_sample(server, soak, began_s))
            progress.update(task, completed=samples[-1].at_s, description=f"{samples[-1].n_answers:,} answers")
            time.sleep(every_s)
        samples.append(_sample(server, soak, began_s))
        soak.stop()
    output.mkdir(parents=True, exist_ok=True)
    draw(samples, output / "soak.png")
    table, faults = _judge(soak, samples)
    _write(output / "report.json", samples, faults)
    console.print(table)
    for fault in faults:
        console.print(fault, style="red", markup=False)
    console.print(f"Written: {output / 'soak.png'} and report.json beside it")
    raise typer.Exit(1 if faults else 0)


if __name__ == "__main__":
    typer.run(_command)

"""``make demo``: the real server, 1,797 real handwritten digits one by one, and both baselines beside it."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from loadtests import workload
from loadtests.batch_sizes import bars, batch_sizes, since
from loadtests.comparison import BATCHED, LIMITED, LOOPED
from loadtests.contenders import Cores, Server, cores_in_use, looped_command, rowwise_command
from loadtests.driver import Measurement
from loadtests.driver_process import DriverProcess
from loadtests.report import duration, others
from loadtests.terminal import terminal

__all__ = ["Reading", "certificate_lines", "next_steps", "reading"]

MODEL = "digits"
CALLERS = 32
_ROUNDS = 3
_ROUND_S = 1.5
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the server read the digits, and how the function itself did. ``different`` counts where they disagree."""

    n: int
    served_right: int
    alone_right: int
    different: int
    unanswered: int

    @property
    def is_equal(self) -> bool:
        """True if every digit was answered, as the per-example function answers it."""
        return self.different == 0 and self.unanswered == 0


def reading(bodies: Sequence[bytes], answers: Sequence[Sequence[float]], labels: Sequence[int]) -> Reading:
    """Compare the served answers with the per-example function's, and both with what the scans show.

    An answer that is no row of ten probabilities counts as unanswered.
    """
    served_right = alone_right = different = unanswered = 0
    for body, answer, label in zip(bodies, answers, labels, strict=True):
        alone = int(np.argmax(answer))
        alone_right += alone == label
        try:
            (row,) = json.loads(body)["predictions"]
            probabilities = np.array(row, np.float64).reshape(10)
        except (ValueError, KeyError, TypeError):
            unanswered += 1
            continue
        served = int(np.argmax(probabilities))
        served_right += served == label
        different += served != alone
    return Reading(
        n=len(labels),
        served_right=served_right,
        alone_right=alone_right,
        different=different,
        unanswered=unanswered,
    )


def certificate_lines(certificate: Mapping[str, Any]) -> list[str]:
    """Return a certificate in three lines."""
    summary = certificate["summary"]
    checks = certificate["parity"]
    sizes = ", ".join(str(check["rows"]) for check in checks)
    exact = sum(all(output["bitwise_equal"] for output in check["outputs"]) for check in checks)
    most = max(check["n_examples"] for check in checks)
    treated = ", ".join(f"{summary[kind]} {kind}" for kind in ("vectorized", "invariant", "looped"))
    return [
        f"ops: {treated}",
        f"batch sizes {sizes}: each checked against the function on up to {most} examples",
        f"largest difference {summary['max_abs']:.1e}; equal to the bit at {exact} of {len(checks)} sizes",
    ]


def next_steps() -> list[str]:
    """Return what to type next, all of which whoever has the command has too."""
    from models import digits

    source = Path(digits.__file__)
    if source.is_relative_to(Path.cwd()):
        source = source.relative_to(Path.cwd())
    return [
        f"rowwise serve --model {MODEL}=models.digits:predict",
        "    serves this model until Ctrl-C; http://127.0.0.1:8000/ shows it, and takes digits that you draw",
        f"rowwise loadtest http://127.0.0.1:8000 --model {MODEL}",
        "    in another terminal: what it carries, as a report with pictures",
        "rowwise register mine ./mine.py:predict",
        f"    a function of your own; the one that was served is in {source}",
    ]


class _Demo:
    """The steps, each said before it is done."""

    def __init__(self, console: Console, directory: Path, cores: Cores) -> None:
        self._console = console
        self._directory = directory
        self._cores = cores
        self._started_s = time.monotonic()
        self._others = cores_in_use()

    def run(self) -> bool:
        """Run all steps; return whether every answer was right."""
        file = self._spin("Training the model if need be, and asking it for all digits alone", self._answers)
        store = self._directory / "store"
        with ExitStack() as stack:
            server = Server("rowwise serve", lambda port: rowwise_command(port, store=store), core=self._cores.server)
            began = time.monotonic()
            self._spin("Starting the server: python -m rowwise serve", partial(stack.enter_context, server))
            self._say(f"Server ready at {server.url} after {time.monotonic() - began:.1f} s")
            certificate = self._register(server.url)
            self._say("Certificate", *certificate_lines(certificate))
            driver = stack.enter_context(DriverProcess(core=self._cores.driver))
            is_right = self._send_digits(driver, server, file)
            is_right &= self._compare(driver, server, store, file)
        self._say(f"Done in {time.monotonic() - self._started_s:.0f} s. How to go on:", *next_steps())
        return is_right

    def _answers(self) -> Path:
        return workload.make(MODEL, self._directory)

    def _register(self, url: str) -> dict[str, Any]:
        self._say("Registering: rowwise.Client(url).register('digits', predict, inputs={'image': float32[64]})")
        began = time.monotonic()
        from server.tensorflow_notices import load_tensorflow, quieten

        quieten()
        self._spin("Importing TensorFlow, to trace the function", load_tensorflow)
        import rowwise
        from models import digits

        with rowwise.Client(url) as client:
            client.register(MODEL, digits.predict, inputs=digits.INPUTS)
            self._say(f"Registered, built, checked and warm after {time.monotonic() - began:.1f} s")
            return client.certificate(MODEL)

    def _send_digits(self, driver: DriverProcess, server: Server, file: Path) -> bool:
        from models import handwriting

        labels = [int(label) for label in handwriting.labels()]
        before = batch_sizes(server.url, MODEL)
        measured, bodies = driver.send_each_once(server.url, file, callers=CALLERS)
        sizes = since(before, batch_sizes(server.url, MODEL))
        answers = workload.load(file).answers
        read = reading(bodies, answers, labels)
        _, held_out = handwriting.split()
        unseen = reading(*([values[index] for index in held_out] for values in (bodies, answers, labels)))
        self._say(
            f"{read.n:,} scans sent one by one by {CALLERS} callers in {measured.duration_s * 1e3:.0f} ms",
            f"read right, served:        {read.served_right:,} = {read.served_right / read.n:.4%}",
            f"read right, function alone: {read.alone_right:,} = {read.alone_right / read.n:.4%}",
            f"of the {unseen.n} that training never saw: {unseen.served_right} served, {unseen.alone_right} alone",
            f"digits that differ: {read.different}; without an answer: {read.unanswered}",
        )
        self._say("Batches that carried them", *bars(sizes))
        self._failed(BATCHED, measured)
        return read.is_equal and not measured.failures

    def _compare(self, driver: DriverProcess, server: Server, store: Path, file: Path) -> bool:
        copy = store.with_name("store-limited")
        shutil.copytree(store, copy)
        rounds: dict[str, list[Measurement]] = {BATCHED: [], LIMITED: [], LOOPED: []}
        with ExitStack() as stack:
            urls = {BATCHED: server.url}
            commands: dict[str, Callable[[int], list[str]]] = {
                LIMITED: lambda port: rowwise_command(port, store=copy, batch_limit=1),
                LOOPED: lambda port: looped_command(port, models=[MODEL]),
            }
            for name, command in commands.items():
                other = Server(name, command, core=self._cores.server)
                self._spin(f"Starting a baseline: {name}", partial(stack.enter_context, other))
                urls[name] = other.url
            with self._console.status("") as status:
                for turn in range(_ROUNDS):
                    for name, url in urls.items():
                        status.update(f"Round {turn + 1} of {_ROUNDS}, {CALLERS} callers: {name}")
                        measured = driver.drive(url, file, callers=CALLERS, duration_s=_ROUND_S)
                        rounds[name].append(measured)
        self._console.print(_table(rounds, self._cores))
        for remark in others(self._others):
            self._say(remark)
        for name, runs in rounds.items():
            for measured in runs:
                self._failed(name, measured)
        return not any(measured.failures for runs in rounds.values() for measured in runs)

    def _failed(self, name: str, measured: Measurement) -> None:
        if measured.failures:
            self._say(f"{name}: {measured.failures}, the first: {measured.first_failure}")

    def _say(self, title: str, *lines: str) -> None:
        self._console.print(Text(title, style="bold"), soft_wrap=True)
        for line in lines:
            self._console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)

    def _spin(self, what: str, step: Callable[[], _Result]) -> _Result:
        with self._console.status(f"{what} ..."):
            return step()


def _table(rounds: Mapping[str, Sequence[Measurement]], cores: Cores) -> Table:
    where = "server and driver on a core each" if cores.server is not None else "server and driver share the cores"
    table = Table(title=f"{CALLERS} callers, one digit a request, every answer checked; {where}", title_justify="left")
    table.add_column("")
    for column in ("requests/s", "times the loop", "p50", "p99"):
        table.add_column(column, justify="right")
    rates = {name: statistics.median(run.requests_per_s for run in runs) for name, runs in rounds.items()}
    for name, runs in rounds.items():
        p50 = statistics.median(run.p50_us for run in runs)
        p99 = statistics.median(run.p99_us for run in runs)
        ratio = f"{rates[name] / rates[LOOPED]:.1f}"
        table.add_row(name, f"{rates[name]:,.0f}", ratio, duration(p50), duration(p99))
    return table


def _command() -> None:
    """Serve, register, send real digits, compare. Exit 1 if any answer differs from the function's own."""
    console = terminal()
    with tempfile.TemporaryDirectory(prefix="rowwise-demo-") as directory:
        is_right = _Demo(console, Path(directory), Cores.here()).run()
    if not is_right:
        console.print("[bold red]Not every answer was the per-example function's.[/bold red]")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(_command)

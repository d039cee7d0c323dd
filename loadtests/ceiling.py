"""How much of what a model itself can do reaches callers.

The ceiling is the served graphs alone: the same artifact, loaded as the server loads it, its session callables in a
loop on full batches of the workload's own examples, on the core that the server gets. Nothing is parsed, planned or
answered there. Then the server is asked on that core, from another one, and both in turn, so that whatever else the
machine does falls on both; what is printed is the median of the shares, not the share of medians.

With ``n`` callers no batch can have more than ``n`` rows, so that is the largest of the ceiling's too. Examples of
differing length are taken to meet in full batches of their padded length, which no server can always arrange.

    python -m loadtests.ceiling --model digits_convnet
    python -m loadtests.ceiling --model lstm --store DIRECTORY     # what was built there is kept
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.table import Table

from loadtests.contenders import Cores, Server, pinned, rowwise_command
from loadtests.driver import drive
from loadtests.driver_process import pin
from loadtests.forms import forms_of
from loadtests.terminal import terminal
from loadtests.workload import MODELS, load, make
from server.artifact import PREDICT, Manifest
from server.batching import Batch, CostTable, Group, Item
from server.engine.model import GroupRunner, LoadedModel
from server.protocol import TFS_JSON, Rows
from server.protocol.rows import end_to_end
from server.signature import ModelSignature

__all__ = ["Ceiling", "batch_of", "best_rows_per_s"]

#: Of the forms of request, those that are compared with the ceiling.
_FORMS = ("predict", "infer, binary")
#: Padded lengths, and rows of a bucket.
_Size = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class _Asked:
    """Who the workload's bodies ask."""

    name: str
    version: int
    signature: ModelSignature


def batch_of(rows: Rows, *, bucket: int) -> Batch:
    """Return a full batch of ``rows``, which are repeated until they fill the bucket."""
    filled = end_to_end([rows] * -(-bucket // rows.n))
    group = Group("ceiling", CostTable({bucket: 1.0}))
    item = Item(group, filled.n, filled, arrived_s=0.0, deadline_s=None, on_done=_nobody)
    return Batch(1, group, bucket, [(item, 0, bucket)], n_rows=bucket, reason="", dispatched_s=0.0, predicted_s=0.0)


def best_rows_per_s(took_s: Mapping[_Size, float], shares: Mapping[tuple[int, ...], float], *, most_rows: int) -> float:
    """Return how many examples a second the best buckets of at most ``most_rows`` run.

    ``took_s`` are seconds of a full batch; ``shares`` says which part of the examples has which padded length.
    """
    row_s = 0.0
    for lengths, share in shares.items():
        own = {rows: seconds for (padded, rows), seconds in took_s.items() if padded == lengths}
        smallest = min(own)
        row_s += share * min(seconds / rows for rows, seconds in own.items() if rows <= max(most_rows, smallest))
    return 1.0 / row_s


class Ceiling:
    """An artifact's graphs, and full batches of the workload's examples for each."""

    def __init__(self, artifact: Path, workload: Path) -> None:
        self._model = LoadedModel.load(artifact)
        signature = self._model.manifest.signature
        bodies = load(workload).bodies
        asked = _Asked(self._model.manifest.name, 1, signature)
        by_lengths: dict[tuple[int, ...], list[Rows]] = defaultdict(list)
        for body in bodies:
            rows = TFS_JSON.decode(body, asked, max_instances=1).rows
            true = rows.lengths[0] if rows.lengths else ()
            padded = tuple(axis.bucket_for(length) for axis, length in zip(signature.axes, true, strict=True))
            by_lengths[padded].append(rows)
        #: Which part of the examples has which padded length.
        self.shares = {lengths: len(found) / len(bodies) for lengths, found in by_lengths.items()}
        self._full: dict[_Size, tuple[GroupRunner, Batch]] = {}
        for lengths, found in by_lengths.items():
            runner = self._model.groups[PREDICT, lengths]
            examples = end_to_end(found)
            for bucket in runner.costs_s:
                self._full[lengths, bucket] = runner, batch_of(examples, bucket=bucket)

    def took_s(self, *, duration_s: float) -> dict[_Size, float]:
        """Run every bucket in turn for a while, and return how long its graph took, the median, in seconds."""
        seen: dict[_Size, list[float]] = {size: [] for size in self._full}
        began_s = perf_counter()
        while perf_counter() - began_s < duration_s or not all(seen.values()):
            for size, (runner, batch) in self._full.items():
                runner.run(batch)
                seen[size].append(batch.graph_s)
        return {size: statistics.median(took) for size, took in seen.items()}


def _nobody(_item: Item) -> None:
    raise AssertionError("nothing of the ceiling is answered")


#: In the process that measures the ceiling.
_here: list[Ceiling] = []


def _open(core: int | None, artifact: Path, workload: Path) -> None:
    pin(core)
    _here.append(Ceiling(artifact, workload))


def _look(duration_s: float) -> tuple[dict[_Size, float], dict[tuple[int, ...], float]]:
    return _here[0].took_s(duration_s=duration_s), _here[0].shares


def _artifact(store: Path, model: str) -> Path:
    found: list[Path] = sorted((store / "models" / model).glob("*/artifact"))
    return found[-1]


def _table(model: str, found: Mapping[tuple[int, str], Sequence[tuple[float, float]]]) -> Table:
    table = Table("callers", "form", "served, requests/s", "ceiling, examples/s", "share", title=model)
    for (callers, form), runs in found.items():
        served, ceilings = zip(*runs, strict=True)
        share = statistics.median(rate / ceiling for rate, ceiling in runs)
        cells = (f"{statistics.median(served):,.0f}", f"{statistics.median(ceilings):,.0f}", f"{share:.2f}")
        table.add_row(str(callers), form, *cells)
    return table


def _command(
    model: Annotated[str, typer.Option(help="digits, digits_convnet or lstm.")] = "digits_convnet",
    callers: Annotated[str, typer.Option(help="Numbers of callers, separated by commas.")] = "32,128",
    repeats: Annotated[int, typer.Option(min=1, help="Interleaved runs.")] = 5,
    duration_s: Annotated[float, typer.Option(min=0.01, help="Of each run; the ceiling gets half.")] = 1.0,
    store: Annotated[Path | None, typer.Option(help="Keep what is made there, and take it if it is there.")] = None,
) -> None:
    """Measure ceiling and served throughput in turn, and print the share."""
    if model not in MODELS:
        raise typer.BadParameter(f"unknown model {model!r}; there are {', '.join(MODELS)}")
    cores, console = Cores.here(), terminal()
    with ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="rowwise-ceiling-")))
        kept = scratch if store is None else store
        file = kept / f"{model}.json"
        if not file.exists():
            kept.mkdir(parents=True, exist_ok=True)
            file = make(model, kept)
        server = Server(
            "rowwise",
            lambda port: rowwise_command(port, store=kept / model, models=[model]),
            core=cores.server,
            timeout_s=900,
        )
        running.enter_context(server)
        alone = ProcessPoolExecutor(
            1,
            mp_context=get_context("spawn"),
            initializer=_open,
            initargs=(cores.server, _artifact(kept / model, model), file),
        )
        running.callback(alone.shutdown, cancel_futures=True)
        predict = load(file)
        name, output = _names(kept / model, model)
        workloads = {form: each for form, each in forms_of(predict, name=name, output=output).items() if form in _FORMS}
        found: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
        for _ in range(repeats):
            for n in map(int, callers.split(",")):
                for form, workload in workloads.items():
                    took_s, shares = alone.submit(_look, duration_s / 2).result()
                    with pinned(cores.driver):
                        run = drive(server.url, workload, callers=n, duration_s=duration_s)
                    if run.failures:
                        raise RuntimeError(f"{form}: {run.first_failure}")
                    found[n, form].append((run.requests_per_s, best_rows_per_s(took_s, shares, most_rows=n)))
        console.print(_table(model, found))


def _names(store: Path, model: str) -> tuple[str, str]:
    """Return the names of the only input and output. Errors: ValueError if there are others."""
    signature = Manifest.read(_artifact(store, model)).signature
    (name,), (output,) = (tuple(each.name for each in side) for side in (signature.inputs, signature.outputs))
    return name, output


if __name__ == "__main__":
    typer.run(_command)

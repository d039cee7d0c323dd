"""What HTTP workers cost, and the link to the engine, without a model: real workers, the real core, TensorFlow nowhere.

An engine's end in a process of its own admits and plans as the server does; in place of a graph a loop takes the time
that a batch would. So a comparison of numbers of workers starts in seconds, and what it shows is theirs. Forms are
measured in turn; the ratio is to the first.

    python -m loadtests.workers [--workers 1,2] [--callers 8,32,128]
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import orjson
import typer
from rich.table import Table

from loadtests.driver_process import DriverProcess
from loadtests.ports import free_port
from loadtests.processes import cpu_s, until
from loadtests.terminal import terminal
from loadtests.workload import Workload
from server.batching import Batch, Batcher, CostTable, Group, QueueLimits
from server.http_listening import listen_shared
from server.link.engine_end import EngineEnd
from server.serving import ServedModel
from server.settings import Settings
from server.signature import ModelSignature, TensorSignature
from server.supervise.orders import Orders
from server.supervise.runtime_directory import RuntimeDirectory

__all__ = ["SIGNATURE", "Spinning"]

#: The digits' own form. An example's answer is its first ten numbers.
SIGNATURE = ModelSignature(
    inputs=(TensorSignature(name="image", dtype="float32", shape=(64,)),),
    outputs=(TensorSignature(name="first", dtype="float32", shape=(10,)),),
)
#: Seconds of a batch, and of each of its rows: about those of a small network.
_BATCH_S, _ROW_S = 100e-6, 4e-6
_WORKER = "worker"
_BUCKETS = (1, 2, 4, 8, 16, 32, 64)


class Spinning:
    """Runs each batch at once, and is busy for as long as its bucket costs. An ``Executor`` of the batching core."""

    def __init__(self, costs: CostTable) -> None:
        self._costs = costs
        self.batcher: Batcher | None = None
        self.n_batches = 0
        self.n_rows = 0

    def free(self) -> int:
        """Always one."""
        return 1

    def start(self, batch: Batch) -> None:
        """Run it."""
        assert self.batcher is not None, "it is told whose batches it runs"
        until_s = time.perf_counter() + self._costs.cost(batch.bucket)
        rows: Any = [item.payload.columns[0][item.first + a : item.first + b] for item, a, b in batch.spans]  # type: ignore[attr-defined]
        outputs = [np.ascontiguousarray(np.concatenate(rows)[:, :10])]
        self.n_batches += 1
        self.n_rows += batch.n_rows
        while time.perf_counter() < until_s:
            pass
        self.batcher.finished(batch, outputs, None)


@dataclass(frozen=True)
class _Serving:
    """What the catalog would say."""

    model: ServedModel
    labels: Sequence[str] = ()
    default_timeout_s: float = 30.0


async def _engine(runtime: RuntimeDirectory) -> None:
    """Answer workers until nobody reads what this has counted any more; count at every line that comes."""
    loop, costs = asyncio.get_running_loop(), CostTable({rows: _BATCH_S + _ROW_S * rows for rows in _BUCKETS})
    executor = Spinning(costs)

    def defer(call: Callable[[], None]) -> None:
        loop.call_soon(call)

    batcher = executor.batcher = Batcher(clock=time.monotonic, executor=executor, defer=defer, limits=QueueLimits())
    model = ServedModel(
        "digits",
        1,
        SIGNATURE,
        {(): Group("digits", costs)},
        batcher=batcher,
        clock=time.monotonic,
        default_timeout_s=30.0,
    )
    end = EngineEnd(
        runtime.link, pid=os.getpid(), serving=lambda: [_Serving(model)], on_waited=lambda _served, _queue_s, _n: None
    )
    await end.start()
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps([executor.n_batches, executor.n_rows]), flush=True)
    end.close()


def _be(child: str) -> None:
    """Be a worker, as standard input orders, or the engine of the server whose directory ``child`` is."""
    from server.http_server import new_event_loop
    from server.http_worker import run_worker

    if child == _WORKER:
        run_worker(Orders.from_json(json.load(sys.stdin)))
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_engine(RuntimeDirectory(Path(child))))


class _Server:
    """An engine's end and its workers, as processes of this one."""

    def __init__(self, n_workers: int) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._runtime = RuntimeDirectory.make()
        names = [f"worker {number + 1}" for number in range(n_workers)]
        settings = Settings(port=port, store=self._runtime.path / "store", log_level="warning")
        self._workers: list[subprocess.Popen[bytes]] = []
        self._engine = subprocess.Popen(
            [sys.executable, "-m", "loadtests.workers", "--child", str(self._runtime.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name, listener in zip(names, listen_shared("127.0.0.1", port, n=n_workers), strict=True):
            with listener:
                listener.set_inheritable(True)
                orders = Orders(
                    name=name,
                    workers=names,
                    settings=settings,
                    runtime=self._runtime,
                    supervisor_pid=os.getpid(),
                    listener=listener.fileno(),
                )
                with os.fdopen(orders.to_file()) as told:
                    self._workers.append(
                        subprocess.Popen(
                            [sys.executable, "-m", "loadtests.workers", "--child", _WORKER],
                            stdin=told,
                            pass_fds=[listener.fileno()],
                        )
                    )

    def is_ready(self) -> bool:
        """Return whether each of many connections finds a worker that knows the model."""
        body = orjson.dumps({"instances": [[0.0] * 64]})
        path = f"{self.url}/v1/models/digits:predict"
        try:
            return all(httpx.post(path, content=body, timeout=5).status_code == 200 for _ in range(16))
        except httpx.HTTPError:
            return False

    def counted(self) -> tuple[int, int]:
        """Return the batches and rows that have run."""
        stdin, stdout = self._engine.stdin, self._engine.stdout
        assert stdin is not None, "it is a pipe"
        assert stdout is not None, "it is a pipe"
        stdin.write(b"\n")
        stdin.flush()
        n_batches, n_rows = json.loads(stdout.readline())
        return n_batches, n_rows

    def spent_s(self) -> tuple[float, float]:
        """Return the processor time of the workers and of the engine."""
        return sum(cpu_s(worker.pid) for worker in self._workers), cpu_s(self._engine.pid)

    def stop(self) -> None:
        """End all of it."""
        for process in (*self._workers, self._engine):
            process.kill()
            process.wait()
        for pipe in (self._engine.stdin, self._engine.stdout):
            if pipe is not None:
                pipe.close()
        shutil.rmtree(self._runtime.path, ignore_errors=True)


@dataclass(frozen=True)
class _Run:
    """What one run showed: requests/s, microseconds of processor time a request, and rows of a batch."""

    requests_per_s: float
    worker_us: float
    engine_us: float
    rows: float


def _measure(server: _Server, driver: DriverProcess, file: Path, *, callers: int, duration_s: float) -> _Run:
    driver.drive(server.url, file, callers=callers, warmup_s=0.0, duration_s=0.2)
    batches, rows = server.counted()
    workers_s, engine_s = server.spent_s()
    run = driver.drive(server.url, file, callers=callers, warmup_s=0.0, duration_s=duration_s)
    if run.failures:
        raise RuntimeError(run.first_failure)
    workers_s, engine_s = server.spent_s()[0] - workers_s, server.spent_s()[1] - engine_s
    batches, rows = server.counted()[0] - batches, server.counted()[1] - rows
    return _Run(run.requests_per_s, 1e6 * workers_s / rows, 1e6 * engine_s / rows, rows / batches)


def _requests(directory: Path) -> Path:
    images = np.random.default_rng(0).integers(0, 16, (200, 64)).astype(np.float32)
    workload = Workload(
        model="digits",
        bodies=tuple(orjson.dumps({"instances": [image.tolist()]}) for image in images),
        answers=tuple(image[:10].tolist() for image in images),
    )
    file = directory / "requests.json"
    file.write_bytes(workload.to_json())
    return file


def _command(
    workers: Annotated[str, typer.Option(help="Numbers of workers, separated by commas.")] = "1,2",
    callers: Annotated[str, typer.Option(help="Numbers of callers, separated by commas.")] = "8,32,128",
    repeats: Annotated[int, typer.Option(min=1, help="Runs in turn, of which the medians count.")] = 4,
    duration_s: Annotated[float, typer.Option(min=0.01)] = 0.8,
    child: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Measure numbers of workers in turn."""
    if child is not None:
        _be(child)
        return
    table = Table("callers", "workers", "requests/s", "x", "worker us", "engine us", "rows a batch")
    with ExitStack() as running, tempfile.TemporaryDirectory() as scratch:
        driver = running.enter_context(DriverProcess())
        servers = {}
        for n in map(int, workers.split(",")):
            servers[n] = _Server(n)
            running.callback(servers[n].stop)
        for server in servers.values():
            until(server.is_ready, "a worker that answers")
        file = _requests(Path(scratch))
        for n_callers in map(int, callers.split(",")):
            found: dict[int, list[_Run]] = {n: [] for n in servers}
            for _ in range(repeats):
                for n, server in servers.items():
                    found[n].append(_measure(server, driver, file, callers=n_callers, duration_s=duration_s))
            first = next(iter(found.values()))
            for n, runs in found.items():
                pairs = zip(runs, first, strict=True)
                ratio = statistics.median(run.requests_per_s / base.requests_per_s for run, base in pairs)
                table.add_row(
                    str(n_callers),
                    str(n),
                    f"{statistics.median(run.requests_per_s for run in runs):,.0f}",
                    f"{ratio:.2f}",
                    f"{statistics.median(run.worker_us for run in runs):.1f}",
                    f"{statistics.median(run.engine_us for run in runs):.1f}",
                    f"{statistics.median(run.rows for run in runs):.1f}",
                )
    terminal().print(table)


if __name__ == "__main__":
    typer.run(_command)

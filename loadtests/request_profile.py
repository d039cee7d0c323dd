"""Where the processor's time of one request goes: ``python -m loadtests.request_profile``.

The real server, in this process, under the driver's load from another one. What is done for many requests at once is
timed at each step, in time of the event loop's thread, and divided by the requests; what no step accounts for is the
kernel's work on sockets, and the event loop's own.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from loadtests import workload
from loadtests.contenders import Server, pinned, rowwise_command
from loadtests.driver_process import DriverProcess
from loadtests.terminal import terminal

__all__ = ["STEPS", "Profile", "Stopwatch", "markdown"]

#: What is timed: class, method, and the step that its own time belongs to. Nested calls count for their own step.
STEPS = (
    ("server.web.hot_lane:HotLaneProtocol", "data_received", "recognize"),
    ("server.web.gathering:Gathering", "_start", "gather"),
    ("server.protocol:PredictCodec", "decode_many", "read bodies"),
    ("server.serving:ServedModel", "predict_many", "admit"),
    ("server.hosting:Host", "_end_of_tick", "plan"),
    ("server.batching:Batcher", "_start", "form the batch"),
    ("server.engine.staging:Staging", "fill", "copy rows"),
    ("server.engine.model:GroupRunner", "run", "execute"),
    ("server.hosting:Host", "_finished", "divide and count"),
    ("server.web.gathering:Gathering", "_answer", "write answers"),
)
_OTHER = "sockets and event loop"


class Stopwatch:
    """Time of this thread by step, of methods that it was put around."""

    def __init__(self) -> None:
        self.spent_s: defaultdict[str, float] = defaultdict(float)
        self._inside_s: list[float] = []

    def watch(self, owner: type, method: str, step: str) -> None:
        """Time a method from now on, less the time of watched methods that it calls."""
        function: Callable[..., Any] = getattr(owner, method)

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began_s = time.thread_time()
            self._inside_s.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                took_s = time.thread_time() - began_s
                self.spent_s[step] += took_s - self._inside_s.pop()
                if self._inside_s:
                    self._inside_s[-1] += took_s

        setattr(owner, method, timed)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Microseconds of processor time a request, by step, and what was measured with them."""

    callers: int
    requests_s: float
    steps_us: dict[str, float]

    @property
    def total_us(self) -> float:
        """All of it."""
        return sum(self.steps_us.values())


async def _profiles(store: Path, file: Path, callers: Sequence[int], *, duration_s: float) -> list[Profile]:
    from server.app import Service
    from server.http_listening import listen
    from server.http_server import HttpServer, uvicorn_config
    from server.metrics import Metrics
    from server.settings import Settings
    from server.store import Store
    from server.web import HotLaneProtocol

    settings = Settings(store=store, port=0)
    stopwatch = Stopwatch()
    for name, method, step in STEPS:
        module, _, owner = name.partition(":")
        stopwatch.watch(getattr(importlib.import_module(module), owner), method, step)
    with Store.open(store) as opened, listen("127.0.0.1", 0) as listener:
        service = Service.assemble(settings, opened, Metrics())
        server = HttpServer(
            uvicorn_config(settings, app=service.front, http=partial(HotLaneProtocol, front=service.front)), grace_s=1.0
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await service.start()
        while service.catalog.readiness():  # noqa: ASYNC110 - readiness has no event
            await asyncio.sleep(0.05)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with DriverProcess(core=_other_core()) as driver:
            found = []
            for n in callers:
                await asyncio.to_thread(driver.drive, url, file, callers=n, duration_s=0.5)
                stopwatch.spent_s.clear()
                began_s = time.process_time()
                measured = await asyncio.to_thread(
                    driver.drive, url, file, callers=n, warmup_s=0.0, duration_s=duration_s
                )
                spent_s = time.process_time() - began_s
                if measured.failures:
                    raise RuntimeError(measured.first_failure)
                steps_us = {step: 1e6 * stopwatch.spent_s[step] / measured.n_answers for _, _, step in STEPS}
                steps_us[_OTHER] = 1e6 * spent_s / measured.n_answers - sum(steps_us.values())
                found.append(Profile(callers=n, requests_s=measured.n_answers / duration_s, steps_us=steps_us))
        server.should_exit = True
        await serving
        await service.stop(1.0)
    return found


def markdown(profiles: Sequence[Profile]) -> str:
    """Return the table as it stands in the manual."""
    lines = [
        "| step | " + " | ".join(f"{profile.callers} callers" for profile in profiles) + " |",
        "|---|" + "---:|" * len(profiles),
    ]
    lines += [
        f"| {step} | " + " | ".join(f"{profile.steps_us[step]:.1f}" for profile in profiles) + " |"
        for step in profiles[0].steps_us
    ]
    lines.append("| **all** | " + " | ".join(f"**{profile.total_us:.1f}**" for profile in profiles) + " |")
    return "\n".join(lines) + "\n"


def _other_core() -> int | None:
    cores = sorted(os.sched_getaffinity(0))
    return cores[1] if len(cores) > 1 else None


def _command(
    model: Annotated[str, typer.Option(help="One of the example models.")] = "digits",
    callers: Annotated[str, typer.Option(help="Numbers of callers, separated by commas.")] = "1,8,32,128",
    duration_s: Annotated[float, typer.Option(min=0.2, help="Seconds for each number of callers.")] = 3.0,
    output: Annotated[Path | None, typer.Option(help="Write the table there, as Markdown.")] = None,
) -> None:
    """Print what each step of a request takes, in microseconds of processor time."""
    from server.http_server import new_event_loop
    from server.thread_pools import keep_pools_apart
    from server.xla_cache import keep_executables

    console = terminal()
    with tempfile.TemporaryDirectory(prefix="rowwise-profile-") as name:
        directory = Path(name)
        store = directory / "store"
        file = workload.make(model, directory)
        with Server("rowwise serve", lambda port: rowwise_command(port, store=store, models=[model]), timeout_s=900.0):
            pass  # it has built the model
        keep_pools_apart()
        keep_executables(store / "xla-cache")
        with pinned(min(os.sched_getaffinity(0))), asyncio.Runner(loop_factory=new_event_loop) as runner:
            profiles = runner.run(
                _profiles(store, file, [int(part) for part in callers.split(",")], duration_s=duration_s)
            )
    table = Table("microseconds a request", *(f"{profile.callers} callers" for profile in profiles))
    for step in profiles[0].steps_us:
        table.add_row(step, *(f"{profile.steps_us[step]:.1f}" for profile in profiles))
    table.add_section()
    table.add_row("all", *(f"{profile.total_us:.1f}" for profile in profiles))
    table.add_row("requests/s", *(f"{profile.requests_s:,.0f}" for profile in profiles))
    console.print(table)
    if output is not None:
        output.write_text(markdown(profiles))
    sys.stdout.flush()
    os._exit(0)  # threads that TensorFlow keeps need no farewell


if __name__ == "__main__":
    typer.run(_command)

"""Where the processor's time of one request goes: ``python -m loadtests.request_profile``; ``--protocol grpc``: gRPC.

The real server, in this process, under load from another one: the driver's, or h2load's where it is gRPC. What is done
for many requests at once is timed at each step, in time of the event loop's thread, and divided by the requests; what
no step accounts for is the kernel's work on sockets, and the event loop's own.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
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

import numpy as np
import typer
from rich.table import Table

from loadtests import grpc_race, workload
from loadtests.contenders import Server, pinned, rowwise_command
from loadtests.driver_process import DriverProcess
from loadtests.ports import free_port
from loadtests.terminal import terminal

__all__ = ["STEPS", "Profile", "Stopwatch", "markdown"]

#: What is timed: class, method, and the step that its own time belongs to. Nested calls count for their own step.
STEPS = (
    ("server.web.hot_lane:HotLaneProtocol", "data_received", "recognize"),
    ("server.web.http2.connection:Connection", "data_received", "recognize"),
    ("server.web.rpc.plain_call:PlainCall", "received", "recognize the message"),
    ("server.web.gathering:Gathering", "_start", "gather"),
    ("server.protocol:PredictCodec", "decode_many", "read bodies"),
    ("server.protocol.proto_many:TensorFormat", "decode_many", "read bodies"),
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

        is_static = isinstance(inspect.getattr_static(owner, method), staticmethod)
        setattr(owner, method, staticmethod(timed) if is_static else timed)


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


async def _profiles(
    store: Path, file: Path, callers: Sequence[int], *, model: str, duration_s: float, is_grpc: bool
) -> list[Profile]:
    from server.app import Service
    from server.http_listening import listen
    from server.http_server import HttpServer, uvicorn_config
    from server.metrics import Metrics
    from server.settings import Settings
    from server.store import Store
    from server.web import HotLaneProtocol

    grpc_port = free_port() if is_grpc else 0
    settings = Settings(store=store, port=0, grpc_port=grpc_port)
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
            if is_grpc:
                body = store.parent / "message"
                body.write_bytes(_message(service.catalog.resolve(model)))

            def load(n: int, secs: float) -> int:
                """Ask for so long, and return how many answers came."""
                if is_grpc:
                    called = grpc_race.load(grpc_port, body, callers=n, secs=max(1, round(secs)), core=_other_core())
                    if called.n_failed:
                        raise RuntimeError(f"{called.n_failed} calls failed")
                    return called.n_calls
                measured = driver.drive(url, file, callers=n, warmup_s=0.0, duration_s=secs)
                if measured.failures:
                    raise RuntimeError(measured.first_failure)
                return measured.n_answers

            found = []
            for n in callers:
                await asyncio.to_thread(load, n, 1.0)
                stopwatch.spent_s.clear()
                began_s, began_wall_s = time.process_time(), time.monotonic()
                n_answers = await asyncio.to_thread(load, n, duration_s)
                spent_s, took_s = time.process_time() - began_s, time.monotonic() - began_wall_s
                steps = dict.fromkeys(step for _, _, step in STEPS if stopwatch.spent_s[step])
                steps_us = {step: 1e6 * stopwatch.spent_s[step] / n_answers for step in steps}
                steps_us[_OTHER] = 1e6 * spent_s / n_answers - sum(steps_us.values())
                found.append(Profile(callers=n, requests_s=n_answers / took_s, steps_us=steps_us))
        server.should_exit = True
        await serving
        await service.stop(1.0)
    return found


def _message(model: Any) -> bytes:
    """Return a ModelInfer of one example, zeros, as gRPC sends it."""
    from server.protocol.dtypes import numpy_dtype
    from server.protocol.messages import message_class
    from server.protocol.oip_datatypes import DATATYPES

    request = message_class("inference.ModelInferRequest")(model_name=model.name)
    for tensor in model.signature.inputs:
        shape = (1, *tensor.padded_shape({axis.name: axis.max for axis in model.signature.axes}))
        request.inputs.add(name=tensor.name, datatype=DATATYPES[tensor.dtype], shape=shape)
        request.raw_input_contents.append(np.zeros(shape, numpy_dtype(tensor.dtype)).tobytes())
    return grpc_race.framed(request.SerializeToString())


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
    protocol: Annotated[str, typer.Option(help="http: ':predict' in JSON; grpc: ModelInfer.")] = "http",
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
                _profiles(
                    store,
                    file,
                    [int(part) for part in callers.split(",")],
                    model=model,
                    duration_s=duration_s,
                    is_grpc=protocol == "grpc",
                )
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

"""What tensors of a megabyte cost by form: ``python -m loadtests.large_tensors``.

One server, a model that takes a float32 vector and answers one (``negated``), and one that answers a number
(``total``). Each form of request is sent in turn, several times; every answer is compared with the right one, byte by
byte. Then one caller sends a request at a time, and the most memory that the server held meanwhile is told in copies of
the tensor. For that the server gives large blocks back to the kernel as soon as they are free: what is kept for the
next request would hide what this one takes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import numpy as np
import orjson
import typer
from rich.console import Console
from rich.table import Table

from loadtests.contenders import Cores, Server, pinned, rowwise_command
from loadtests.driver import drive
from loadtests.workload import Workload

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["FORMS", "FixedWorkload", "negated", "peak_bytes", "total", "workloads"]

MODELS = ("negated", "total")
#: The first one is what the others are compared with.
FORMS = ("predict", "infer, flat", "infer, binary", "infer, raw")
_ROUNDS = 12
#: Blocks from this size on are the kernel's again when they are free.
_GIVEN_BACK_BYTES = 131_072


def negated(x: tf.Tensor) -> tf.Tensor:
    """Return the vector with the other sign. Shapes: [n] to [n]."""
    return -x


def total(x: tf.Tensor) -> tf.Tensor:
    """Return the sum of a vector. Shapes: [n] to []."""
    import tensorflow as tf

    return tf.reduce_sum(x)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedWorkload(Workload):
    """One request whose answer's bytes are known. ``n_json`` bytes of the body are JSON; None: all."""

    url_path: str
    n_json: int | None = None

    @property
    def path(self) -> str:
        """The URL path that the requests go to."""
        return self.url_path

    def requests(self, host: str) -> list[bytes]:
        """Return the bytes of the request."""
        length = "" if self.n_json is None else f"Inference-Header-Content-Length: {self.n_json}\r\n"
        head = f"POST {self.path} HTTP/1.1\r\nHost: {host}\r\n{length}Content-Length: "
        return [b"%s%d\r\n\r\n%s" % (head.encode(), len(body), body) for body in self.bodies]

    def accepts(self, index: int, body: bytes) -> bool:
        """Return whether ``body`` is the right answer, to the byte."""
        return bool(body == self.answers[index])


def workloads(url: str, model: str, values: np.ndarray[Any, np.dtype[np.float32]]) -> dict[str, FixedWorkload]:
    """Ask once in each form, check the answer's numbers, and return what is to be sent and expected from then on.

    Shapes: values [n]. Errors: RuntimeError, if an answer is wrong.
    """
    expected = -values if model == "negated" else values.sum(dtype=np.float64)
    tensor = {"name": "x", "shape": [1, len(values)], "datatype": "FP32"}
    plain = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    head = orjson.dumps(
        {
            "inputs": [{**tensor, "parameters": {"binary_data_size": values.nbytes}}],
            "parameters": {"binary_data_output": True},
        }
    )
    infer = f"/v2/models/{model}/infer"
    asked = (
        (f"/v1/models/{model}:predict", b'{"instances":[%b]}' % plain, None),
        (infer, b'{"inputs":[%b,"data":%b}]}' % (orjson.dumps(tensor)[:-1], plain), None),
        (infer, head + values.tobytes(), len(head)),
        (infer, values.tobytes(), 0),
    )
    found = {}
    for form, (path, body, n_json) in zip(FORMS, asked, strict=True):
        headers = {} if n_json is None else {"Inference-Header-Content-Length": str(n_json)}
        answer = httpx.post(url + path, content=body, headers=headers, timeout=600)
        if answer.status_code != 200 or not np.allclose(_numbers(answer, form), expected, rtol=1e-4):
            raise RuntimeError(f"{model}, {form}: answered {answer.status_code}, {answer.content[:200]!r}")
        found[form] = FixedWorkload(
            model=model, bodies=(body,), answers=(answer.content,), url_path=path, n_json=n_json
        )
    return found


def _numbers(answer: httpx.Response, form: str) -> Any:
    if form == "predict":
        return np.array(answer.json()["predictions"][0], np.float32)
    n_json = answer.headers.get("inference-header-content-length")
    if n_json is None:
        return np.array(answer.json()["outputs"][0]["data"], np.float32)
    return np.frombuffer(answer.content[int(n_json) :], np.float32)


def peak_bytes(server: Server, workload: Workload) -> int:
    """Return how much more memory than before the server held while it answered some requests, one at a time."""
    request = httpx.Request(
        "POST",
        server.url + workload.path,
        content=workload.bodies[0],
        headers=_headers(workload),
    )
    with httpx.Client(timeout=600) as client:
        for _ in range(_ROUNDS):  # until what is made at first is made
            client.send(request)
        before = _memory(server.pid, "VmRSS")
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")
        for _ in range(_ROUNDS):
            if client.send(request).content != workload.answers[0]:
                raise RuntimeError("an answer was another one")
        return _memory(server.pid, "VmHWM") - before


def _headers(workload: Workload) -> dict[str, str]:
    n_json = workload.n_json if isinstance(workload, FixedWorkload) else None
    return {} if n_json is None else {"Inference-Header-Content-Length": str(n_json)}


def _memory(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1_024


@contextmanager
def _giving_back() -> Iterator[None]:
    """Let servers that are started inside the block give large blocks back."""
    name = "MALLOC_MMAP_THRESHOLD_"
    before = os.environ.get(name)
    os.environ[name] = str(_GIVEN_BACK_BYTES)
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _serving(directory: Path, core: int | None) -> Server:
    def command(port: int) -> list[str]:
        own = ("--import-package", "loadtests", "--build-niceness", "0")
        return [*rowwise_command(port, store=directory / "store"), *own]

    return Server("rowwise", command, core=core, timeout_s=600)


def _register(url: str, n: int) -> None:
    for model in MODELS:
        spec = {"inputs": {"x": {"dtype": "float32", "shape": [n]}}, "buckets": [1, 4]}
        answer = httpx.put(
            f"{url}/v1/models/{model}?wait=true",
            json={"import_path": f"loadtests.large_tensors:{model}", **spec},
            timeout=600,
        )
        if answer.status_code != 200:
            raise RuntimeError(f"registering {model} was answered {answer.status_code}: {answer.text[:500]}")


def _command(
    mib: Annotated[float, typer.Option(min=0.01, max=16, help="Size of the tensor.")] = 1.0,
    callers: Annotated[list[int], typer.Option(min=1)] = [1, 4],  # noqa: B006 - typer's form of a default
    repeats: Annotated[int, typer.Option(min=1)] = 5,
    duration_s: Annotated[float, typer.Option(min=0.01)] = 2.0,
) -> None:
    """Measure large tensors in every form against one server, in turn."""
    n = int(mib * 2**20) // 4
    values = np.random.default_rng(0).normal(size=n).astype(np.float32)
    cores, console = Cores.here(), Console()
    with tempfile.TemporaryDirectory() as name:
        with _serving(Path(name), cores.server) as server, pinned(cores.driver):
            _register(server.url, n)
            for model in MODELS:
                asked = workloads(server.url, model, values)
                for count in callers:
                    console.print(_rates(server, asked, model, count, repeats, duration_s))
        with _giving_back(), _serving(Path(name), cores.server) as server, pinned(cores.driver):
            console.print(_copies(server, values))


def _rates(
    server: Server, asked: dict[str, FixedWorkload], model: str, callers: int, repeats: int, duration_s: float
) -> Table:
    found: dict[str, list[tuple[float, float]]] = {form: [] for form in FORMS}
    for _ in range(repeats):
        for form, workload in asked.items():
            began_s = server.cpu_s()
            run = drive(server.url, workload, callers=callers, warmup_s=0.0, duration_s=duration_s)
            if run.failures:
                raise RuntimeError(f"{form}: {run.first_failure}")
            found[form].append((run.requests_per_s, (server.cpu_s() - began_s) / run.n_answers * 1e3))
    table = Table("form", "requests/s", "x", "CPU ms", "x", title=f"{model}, {callers} callers")
    first = found[FORMS[0]]
    for form, runs in found.items():
        rates, costs = zip(*runs, strict=True)
        rate = median(run[0] / base[0] for run, base in zip(runs, first, strict=True))
        cost = median(base[1] / run[1] for run, base in zip(runs, first, strict=True))
        table.add_row(form, f"{median(rates):,.1f}", f"{rate:.1f}", f"{median(costs):.2f}", f"1/{cost:.1f}")
    return table


def _copies(server: Server, values: np.ndarray[Any, np.dtype[np.float32]]) -> Table:
    table = Table("model", "form", "body, tensors", "peak, tensors", title="memory of one request at a time")
    for model in MODELS:
        for form, workload in workloads(server.url, model, values).items():
            body, peak = len(workload.bodies[0]) / values.nbytes, peak_bytes(server, workload) / values.nbytes
            table.add_row(model, form, f"{body:.1f}", f"{peak:.1f}")
    return table


if __name__ == "__main__":
    typer.run(_command)

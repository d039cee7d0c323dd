"""``python -m loadtests.grpc_race --race DIR``: ModelInfer over gRPC, ours against Triton with its Python backend.

The race's directory has Triton in a virtual environment, and the same model and weights for both. Both servers are up,
each asked in turn, on one core; h2load (Debian: nghttp2-client) asks from the other, one call at a time on each
connection. It knows HTTP/2 and not gRPC: sizes are compared of what it gets, and answers checked before and after.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from loadtests.contenders import Cores, Server, pinned
from loadtests.ports import free_port
from loadtests.processes import tree_cpu_s
from loadtests.terminal import terminal

__all__ = ["METHOD", "Measured", "framed", "load", "read_h2load"]

METHOD = "/inference.GRPCInferenceService/ModelInfer"
#: A frame of gRPC: not compressed, four bytes of length.
_PREFIX_BYTES = 5
#: Starts the race's Triton as its own program does, but for HTTP, with gRPC.
_TRITON = """
import os, runpy, sys
execv = os.execv
def with_grpc(program, arguments):
    kept = [argument for argument in arguments if "grpc" not in argument]
    execv(program, [*kept, "--allow-grpc=true", "--grpc-address=127.0.0.1", f"--grpc-port={sys.argv[2]}"])
os.execv = with_grpc
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What h2load found: calls a second, calls, bytes of answers' bodies, and what failed."""

    calls_per_s: float
    n_calls: int
    n_body_bytes: int
    n_failed: int


def read_h2load(text: str) -> Measured:
    """Read h2load's report. Errors: ValueError if it is none."""
    rate = re.search(r"^finished in [\d.]+\w*, ([\d.]+) req/s", text, re.MULTILINE)
    calls = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text)
    data = re.search(r"\((\d+)\) data$", text, re.MULTILINE)
    if not (rate and calls and data):
        raise ValueError(f"h2load said: {text[-300:]}")
    _, succeeded, *bad = map(int, calls.groups())
    return Measured(float(rate[1]), succeeded, int(data[1]), sum(bad))


def _request(example: np.ndarray[Any, Any]) -> Any:
    import tritonclient.grpc as triton

    value = triton.InferInput("x", [1, *example.shape], "FP32")
    value.set_data_from_numpy(example[None])
    return value


def _ask(port: int, example: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import tritonclient.grpc as triton

    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        answer: np.ndarray[Any, Any] = client.infer("m", [_request(example)]).as_numpy("y")[0]
        return answer


def _body(example: np.ndarray[Any, Any], path: Path) -> None:
    """Write the one request that h2load sends, framed."""
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest(model_name="m")
    value = message.inputs.add(name="x", datatype="FP32")
    value.shape.extend([1, *example.shape])
    message.raw_input_contents.append(example.tobytes())
    path.write_bytes(framed(message.SerializeToString()))


def framed(message: bytes) -> bytes:
    """Return a message as gRPC sends it."""
    return b"\0" + len(message).to_bytes(4) + message


def load(port: int, body: Path, *, callers: int, secs: int, core: int | None, method: str = METHOD) -> Measured:
    """Let h2load call a server of gRPC on this machine with one message, framed, for some seconds.

    Errors: CalledProcessError; ValueError.
    """
    command = ["h2load", "-t", "1", "-c", str(callers), "-m", "1", "-D", str(secs), "-d", str(body)]
    command += ["-H", "content-type: application/grpc", "-H", "te: trailers", f"http://127.0.0.1:{port}{method}"]
    with pinned(core):
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return read_h2load(ended.stdout)


def _triton(race: Path, model: str, port: int, http_port: int) -> list[str]:
    python = race / "venv-pytriton" / "bin" / "python"
    base = subprocess.run(
        [python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    variables = {
        "LD_LIBRARY_PATH": f"{base}/lib",
        "RACE_MODEL": model,
        "RACE_PORT": http_port,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "OMP_NUM_THREADS": "1",
    }
    program = [str(python), "-c", _TRITON, str(race / "svc" / "tritonpb_svc.py"), str(port)]
    return ["env", *(f"{name}={value}" for name, value in variables.items()), *program]


def _command(
    race: Annotated[Path, typer.Option(envvar="RACE", exists=True, file_okay=False, help="The race's directory.")],
    models: Annotated[str, typer.Option(help="Models, by the race's names.")] = "digits_mlp,convnet",
    callers: Annotated[str, typer.Option(help="Numbers of callers.")] = "1,8,32,128",
    repeats: Annotated[int, typer.Option(min=1, help="Runs; medians count.")] = 3,
    secs: Annotated[int, typer.Option(min=1, help="Seconds of each measurement.")] = 3,
    output: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("reports/grpc_race"),
) -> None:
    """Measure both and print the medians; exit 1 if an answer is wrong or missing."""
    output.mkdir(parents=True, exist_ok=True)
    os.environ["ROWWISE_CACHE"] = str(race.absolute())
    cores = Cores.here()
    table = Table("model", "callers", "ours, calls/s", "Triton, calls/s", "ratio", "ours, CPU µs", "Triton, CPU µs")
    rows: list[dict[str, Any]] = []
    for model in models.split(","):
        with ExitStack() as stack:
            rows += _measured(stack, race.absolute(), model, callers, repeats, secs, output, cores)
    for row in rows:
        ours, other = row["ours"], row["triton"]
        figures = (f"{ours['rate']:,.0f}", f"{other['rate']:,.0f}", f"{ours['rate'] / other['rate']:.2f}")
        table.add_row(row["model"], str(row["callers"]), *figures, f"{ours['cpu_us']:.0f}", f"{other['cpu_us']:.0f}")
    (output / "grpc_race.json").write_text(json.dumps(rows, indent=1))
    terminal().print(table)


def _measured(
    stack: ExitStack, race: Path, model: str, callers: str, repeats: int, secs: int, output: Path, cores: Cores
) -> list[dict[str, Any]]:
    grpc_port = free_port()
    store = (output / "store" / model).absolute()

    def ours(port: int) -> list[str]:
        serve = [sys.executable, "-m", "rowwise", "serve", "--port", str(port), "--grpc-port", str(grpc_port)]
        return [*serve, "--store", str(store), "--model", f"m=loadtests.race_models.{model}:predict"]

    server = stack.enter_context(Server("ours", ours, core=cores.server, timeout_s=900))
    triton_port = free_port()
    triton = stack.enter_context(
        Server("Triton", lambda port: _triton(race, model, triton_port, port), core=cores.server, timeout_s=120)
    )
    contenders = {"ours": (server.pid, grpc_port), "triton": (triton.pid, triton_port)}
    with np.load(race / "models" / model / "examples.npz", allow_pickle=False) as file:
        examples, expected = file["x"], file["y"]
    directory = stack.enter_context(tempfile.TemporaryDirectory())
    body = Path(directory) / "request"
    _body(examples[0], body)

    def check() -> None:
        for name, (_, port) in contenders.items():
            for example, answer in zip(examples[:64], expected[:64], strict=True):
                if not np.allclose(_ask(port, example), answer, atol=1e-4):
                    raise SystemExit(f"{name} gives a wrong answer on {model}")

    check()
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    sizes: dict[str, set[float]] = {}
    for _ in range(repeats):
        for n in map(int, callers.split(",")):
            for name, (pid, port) in contenders.items():
                load(port, body, callers=n, secs=1, core=cores.driver)
                began = tree_cpu_s(pid)
                measured = load(port, body, callers=n, secs=secs, core=cores.driver)
                if measured.n_failed:
                    raise SystemExit(f"{name}: {measured.n_failed} calls failed on {model} at {n} callers")
                sizes.setdefault(name, set()).add(measured.n_body_bytes / measured.n_calls)
                cpu_us = (tree_cpu_s(pid) - began) / measured.n_calls * 1e6
                found.setdefault((name, n), []).append((measured.calls_per_s, cpu_us))
                time.sleep(0.2)
    check()
    for name, each in sizes.items():
        # An error has no message: answers would be shorter on average. What is in flight at the end is cut.
        if max(each) - min(each) > 0.02 * max(each) or min(each) <= _PREFIX_BYTES:
            raise SystemExit(f"{name}: answers of different sizes, {sorted(each)}: some were errors")

    def median(name: str, n: int) -> dict[str, float]:
        rates, cpus = zip(*found[name, n], strict=True)
        return {"rate": statistics.median(rates), "cpu_us": statistics.median(cpus)}

    return [
        {"model": model, "callers": n, "ours": median("ours", n), "triton": median("triton", n)}
        for n in map(int, callers.split(","))
    ]


if __name__ == "__main__":
    typer.run(_command)

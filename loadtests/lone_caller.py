"""A lone caller: what does the server add to a call of the session, and to HTTP?

Three times, in turn, so that the machine's ups and downs hit all of them alike: a prediction over HTTP, a bare answer
of the same size over HTTP (``loadtests.responder``), and the session's own callable on one example.

    python -m loadtests.lone_caller [--store STORE]
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from loadtests import workload
from loadtests.contenders import Server, responder_command, rowwise_command
from loadtests.driver import drive

__all__ = ["session_us"]

_MODEL = "digits"
_ROUND_S = 0.3


def session_us(artifact: Path) -> Callable[[], float]:
    """Load an artifact; return what measures the median microseconds of one example by the session alone."""
    from server.engine._session import GraphSession  # TensorFlow

    graph = json.loads((artifact / "model.json").read_text())["entries"]["predict"][0]
    mode = graph["mode"]
    session = GraphSession(
        artifact / "saved_model", executor=mode["executor"], intra_op_threads=mode["intra_op_threads"]
    )
    call = session.callable(graph["signature"], inputs=["image"], outputs=["probabilities"])
    row = np.full((1, 64), 0.25, np.float32)

    def measure() -> float:
        took = []
        end_s = time.perf_counter() + _ROUND_S
        while time.perf_counter() < end_s:
            began_s = time.perf_counter()
            call(row)
            took.append((time.perf_counter() - began_s) * 1e6)
        return statistics.median(took)

    return measure


def _session_process(artifact: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "loadtests.lone_caller", "--session", str(artifact)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _serve_measurements(artifact: Path) -> None:
    """Measure once for each line of standard input."""
    measure = session_us(artifact)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(measure(), flush=True)


def _compare(store: Path, path: Path, n_rounds: int) -> None:
    asked = workload.load(path)
    artifact = min((store / "models" / _MODEL).glob("*/artifact"))

    def command(port: int) -> list[str]:
        return rowwise_command(port, store=store, models=[_MODEL])

    with (
        Server("rowwise serve", command, timeout_s=900.0) as server,
        Server("responder", responder_command) as bare,
        _session_process(artifact) as session,
    ):
        assert session.stdin is not None, "it has pipes"
        assert session.stdout is not None, "it has pipes"
        session.stdout.readline()
        served, http, alone = [], [], []
        for _ in range(n_rounds):
            served.append(drive(server.url, asked, callers=1, warmup_s=0.05, duration_s=_ROUND_S).p50_us)
            # Its answer is the same to everything, and so wrong: only its time counts.
            http.append(drive(bare.url, asked, callers=1, warmup_s=0.05, duration_s=_ROUND_S).p50_us)
            session.stdin.write("\n")
            session.stdin.flush()
            alone.append(float(session.stdout.readline()))
        session.stdin.close()
    added = [a - b - c for a, b, c in zip(served, http, alone, strict=True)]
    print(f"a prediction over HTTP     {statistics.median(served):7.0f} us")
    print(f"a bare answer over HTTP    {statistics.median(http):7.0f} us")
    print(f"the session's own call     {statistics.median(alone):7.0f} us")
    print(f"added by the server        {statistics.median(added):7.0f} us, the median of {n_rounds} rounds")


def _command(
    store: Annotated[Path | None, typer.Option(help="A store that has the model, else it is built.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 15,
    session: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Compare a lone caller's latency with that of its parts."""
    if session is not None:
        _serve_measurements(session)
        return
    with tempfile.TemporaryDirectory(prefix="rowwise-lone-") as name:
        directory = Path(name)
        path = workload.make(_MODEL, directory)
        if store is None:
            store = directory / "store"
            with Server(
                "rowwise serve",
                lambda port: rowwise_command(port, store=directory / "store", models=[_MODEL]),
                timeout_s=900.0,
            ):
                pass
        _compare(store, path, rounds)


if __name__ == "__main__":
    typer.run(_command)

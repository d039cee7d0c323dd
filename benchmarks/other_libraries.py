"""The measuring side of ``benchmarks.worker``: JAX's and DyNet's contenders as timers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["IN_DYNET", "Worker", "workers_for"]

#: The models that DyNet's users would write in it.
IN_DYNET = ("mlp", "lstm", "tree_lstm")

#: XLA in JAX takes all cores unless it is told; TensorFlow's sessions here take one.
_ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
}


class Worker:
    """A process with one contender. Errors: RuntimeError with what went wrong there."""

    def __init__(self, library: str, workload: str, *flags: str) -> None:
        command = [sys.executable, "-m", "benchmarks.worker", library, workload, *flags]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | _ONE_THREAD,
        )

    def load(
        self, path: Path, *, weights: Mapping[str, Any], inputs: Mapping[str, Any], expected: Mapping[str, Any]
    ) -> None:
        """Hand over a batch; the worker compares its answers with those expected."""
        parts = {"weights": weights, "inputs": inputs, "expected": expected}
        np.savez(path, **{f"{part}:{name}": value for part, values in parts.items() for name, value in values.items()})
        self._ask({"load": str(path)})

    def __call__(self, n_calls: int) -> float:
        """Return the time of one call, seconds."""
        return float(self._ask({"calls": n_calls})["seconds"])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"error": "the worker died"}')
        except BrokenPipeError:
            answer = {"error": "the worker died"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def workers_for(workload: str, *, not_in_xla: str | None) -> tuple[dict[str, Worker], dict[str, str]]:
    """Start the other libraries' contenders for a model; also say why some are missing."""
    wanted: dict[str, tuple[str, ...]] = {"jax.vmap": ("jax",)}
    missing = {}
    if not_in_xla is not None:
        missing["jax.vmap"] = not_in_xla
        del wanted["jax.vmap"]
    if workload in IN_DYNET:
        wanted |= {"dynet": ("dynet",), "dynet autobatch": ("dynet", "--autobatch")}
    workers = {}
    for name, (library, *flags) in wanted.items():
        if importlib.util.find_spec(library) is None:
            missing[name] = f"{library} is not installed: pip install 'rowwise[bench]'"
        else:
            workers[name] = Worker(library, workload, *flags)
    return workers, missing

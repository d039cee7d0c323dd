"""The digits MLP, vectorized from one example, against the same network written for batches by hand.

Both run through the same kind of session, in one process, interleaved; medians and ratios are printed. Run it
with ``python -m benchmarks.vectorized_mlp``.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from models import digits
from server.engine._session import GraphSession
from vectorizer import vectorize

__all__ = ["main"]

_BUCKETS = (1, 8, 64)
_ROUNDS = 201
_CALLS = 20


def main() -> None:
    """Measure and print the table."""
    print(f"digits MLP, one core of {_cpu_name()}, TensorFlow {tf.__version__}, medians of {_ROUNDS} rounds\n")
    with tempfile.TemporaryDirectory() as scratch:
        runs = _contenders(Path(scratch) / "model")
        medians = _interleaved(runs)
    print(f"{'rows':>5} {'compiler':>9} {'vectorized us':>14} {'by hand us':>11} {'ratio':>6}")
    results = []
    for rows in _BUCKETS:
        for compiler in ("graph", "xla"):
            ours, hand = medians["ours", rows, compiler], medians["hand", rows, compiler]
            results.append({"rows": rows, "compiler": compiler, "ours_s": ours, "hand_s": hand, "ratio": ours / hand})
            print(f"{rows:>5} {compiler:>9} {ours * 1e6:>14.1f} {hand * 1e6:>11.1f} {ours / hand:>6.2f}")
    print("\n" + json.dumps({"benchmark": "vectorized_mlp", "results": results}))


def _contenders(path: Path) -> dict[tuple[str, int, str], Callable[[], Any]]:
    vectorized = vectorize(digits.predict, inputs=digits.INPUTS, buckets=_BUCKETS)
    variables = list(vectorized.function.variables)
    matrices = sorted((v for v in variables if v.shape.rank == 2), key=lambda v: v.shape != (64, 256))
    first = next(v for v in matrices if v.shape == (64, 256))
    second = next(v for v in matrices if v.shape == (256, 256))
    last = next(v for v in matrices if v.shape == (256, 10))
    biases = [v for v in variables if v.shape.rank == 1]
    last_bias = next(v for v in biases if v.shape == (10,))
    hidden_biases = [v for v in biases if v.shape == (256,)]

    def by_hand(image: tf.Tensor) -> dict[str, tf.Tensor]:
        h = tf.nn.relu(tf.nn.bias_add(image @ first, hidden_biases[0]))
        h = tf.nn.relu(tf.nn.bias_add(h @ second, hidden_biases[1]))
        return {"probabilities": tf.nn.softmax(tf.nn.bias_add(h @ last, last_bias))}

    signatures = {}
    for rows in _BUCKETS:
        spec = tf.TensorSpec([rows, 64], tf.float32, name="image")
        ours = vectorized.bucket(rows)
        for compiler, jit in (("graph", False), ("xla", True)):
            for who, function in (("ours", lambda image, ours=ours: ours(image=image)), ("hand", by_hand)):
                signatures[f"{who}_{rows}_{compiler}"] = tf.function(
                    function, jit_compile=jit, autograph=False
                ).get_concrete_function(spec)
    root = tf.Module()
    root.kept = variables
    tf.saved_model.save(root, str(path), signatures=signatures)
    session = GraphSession(path, executor="single_threaded", intra_op_threads=1)
    rng = np.random.default_rng(0)
    inputs = {rows: rng.uniform(size=(rows, 64)).astype(np.float32) for rows in _BUCKETS}
    runs: dict[tuple[str, int, str], Callable[[], Any]] = {}
    for key in signatures:
        who, size, compiler = key.split("_")
        call = session.callable(key, inputs=["image"], outputs=["probabilities"])
        runs[who, int(size), compiler] = partial(call, inputs[int(size)])
    return runs


def _interleaved(runs: dict[tuple[str, int, str], Callable[[], Any]]) -> dict[tuple[str, int, str], float]:
    times: dict[tuple[str, int, str], list[float]] = {key: [] for key in runs}
    for run in runs.values():
        run()
    for _ in range(_ROUNDS):
        for key, run in runs.items():
            run()
            started = time.perf_counter()
            for _ in range(_CALLS):
                run()
            times[key].append((time.perf_counter() - started) / _CALLS)
    return {key: statistics.median(values) for key, values in times.items()}


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown processor"


if __name__ == "__main__":
    main()

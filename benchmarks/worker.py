"""Another library's contenders, in a process of their own: ``python -m benchmarks.worker jax|dynet ...``.

It shares no thread pool and no allocator with TensorFlow, and DyNet's way of batching is fixed when it is imported.
The measuring process asks for each timing and waits for it, so that only one of them computes at any time.

One line of JSON in, one out: ``{"load": path}`` makes the contender from an archive of weights, inputs and expected
outputs, and checks its answers; ``{"calls": n}`` times them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.rounds import timer_of

__all__ = ["main"]

Arrays = dict[str, np.ndarray]


def _load(library: str, name: str, path: str) -> Callable[[], Arrays]:
    archive = np.load(path)
    parts: dict[str, Arrays] = {"weights": {}, "inputs": {}, "expected": {}}
    for key in archive.files:
        part, _, entry = key.partition(":")
        parts[part][entry] = archive[key]
    module: Any = importlib.import_module(f"benchmarks.in_{library}")
    call: Callable[[], Arrays] = module.contender(name, parts["weights"], parts["inputs"])
    answers = call()
    for entry, expected in parts["expected"].items():
        np.testing.assert_allclose(answers[entry], expected, rtol=1e-4, atol=1e-5, err_msg=entry)
    return call


def main() -> None:
    """Answer requests until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=("jax", "dynet"))
    parser.add_argument("workload")
    parser.add_argument("--autobatch", action="store_true", help="let DyNet batch on its own")
    options = parser.parse_args()
    # What libraries print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if options.library == "dynet":
        import dynet_config

        dynet_config.set(autobatch=int(options.autobatch), mem="1024", random_seed=1)
    timer = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if "load" in request:
                timer = timer_of(_load(options.library, options.workload, request["load"]))
            elif timer is not None:
                answer["seconds"] = timer(request["calls"])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the measuring process reports it
            answer["error"] = f"{type(error).__name__}: {error}".strip()[:400]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

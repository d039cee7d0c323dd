"""All targets, and a run of one in a process of its own."""

from __future__ import annotations

import logging

from tests.fuzz_codecs.codecs import CODECS
from tests.fuzz_codecs.http2_connections import Http2
from tests.fuzz_codecs.http_connections import Http
from tests.fuzz_codecs.run import Broken, Tally, bound_memory, run
from tests.fuzz_codecs.target import Target

__all__ = ["TARGETS", "run_one"]

TARGETS: tuple[Target, ...] = (*CODECS, Http(), Http2())


def run_one(name: str, n_inputs: int, seed: int) -> Tally | str:
    """Run a target by its name, with this process's memory bounded; a string says what broke."""
    # Of what callers send wrong the libraries say something each time.
    logging.disable(logging.ERROR)
    target = next(target for target in TARGETS if target.name == name)
    try:
        run(target, n_inputs=100, seed=seed + 1)  # what is imported late is imported now
        bound_memory()
        return run(target, n_inputs=n_inputs, seed=seed)
    except Broken as error:
        return str(error)

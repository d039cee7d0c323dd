"""A short run of the fuzzer, and what it must find."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from tests.fuzz_codecs.run import Broken, run
from tests.fuzz_codecs.target import Target
from tests.fuzz_codecs.targets import TARGETS


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Of what callers send wrong the libraries say something each time."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_inputs_that_are_nearly_right_are_read_or_refused_with_a_declared_error(target: Target) -> None:
    tally = run(target, n_inputs=300, seed=7)
    assert tally.n_inputs == 300 + len(target.corpus())
    assert len(tally.outcomes) > 1, "all are refused, or none: then nothing was tried"


class Careless(Target):
    """Reads a length and believes it."""

    name = "careless"

    def corpus(self) -> Sequence[bytes]:
        return [b"\x03abc", b"\x01a"]

    def read(self, data: bytes) -> str:
        n = data[0] if data else 0
        return "read" if data[n:] else str(data[n])


def test_an_error_that_is_not_declared_is_found_with_its_input() -> None:
    with pytest.raises(Broken, match=r"input [0-9]+ of seed 0, b'.*IndexError"):
        run(Careless(), n_inputs=100, seed=0)


def test_a_process_lives_on_after_a_finding() -> None:
    code = """
import contextlib, time
from tests.fuzz_codecs import run, test_codecs
run._HANG_S = 0.2
with contextlib.suppress(run.Broken):
    run.run(test_codecs.Careless(), n_inputs=100, seed=0)
time.sleep(0.5)
print("lives")
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "lives\n"

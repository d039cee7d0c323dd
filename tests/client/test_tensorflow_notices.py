from __future__ import annotations

import os
import subprocess
import sys

import pytest

from server.build.supervisor import builder_environment
from server.tensorflow_notices import quieten

NOTICES = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1.2   16510 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.",
    "E0000 00:00:1.2   16510 cuda_platform.cc:52] failed call to cuInit: INTERNAL: UNKNOWN ERROR (303)",
)
#: Writes as native code does, past Python's own standard error.
HELD = """
import os, sys
from server.tensorflow_notices import notices_held, open_stderr, quieten
if sys.argv[1] == "quiet":
    quieten()
log = open_stderr()
try:
    with notices_held():
        for line in sys.argv[2:]:
            os.write(2, line.encode() + b"\\n")
        print("logged", file=log)
        raise SystemExit(3)
finally:
    os.write(2, b"after\\n")
"""


def run(*arguments: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    finished = subprocess.run(
        [sys.executable, "-c", HELD, *arguments], stderr=subprocess.PIPE, text=True, env=environment, check=False
    )
    assert finished.returncode == 3
    return finished.stderr.splitlines()


def test_notices_are_left_out_and_everything_else_is_passed_on_in_order():
    assert run("quiet", NOTICES[0], "first", *NOTICES[1:], "second") == ["logged", "first", "second", "after"]


def test_a_broken_driver_is_no_notice():
    broken = "E0000 00:00:1.2 16510 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA_ERROR_NO_DEVICE (100)"

    assert run("quiet", broken) == ["logged", broken, "after"]


def test_nothing_is_held_from_who_chose_a_level():
    assert run("loud", *NOTICES) == [*NOTICES, "logged", "after"]


def test_a_level_that_was_chosen_stays():
    environment = {"TF_CPP_MIN_LOG_LEVEL": "0"}

    quieten(environment)

    assert environment == {"TF_CPP_MIN_LOG_LEVEL": "0"}


@pytest.mark.parametrize("chosen", [{}, {"TF_CPP_MIN_LOG_LEVEL": "1"}])
def test_a_builder_is_as_quiet_as_its_server(chosen):
    environment = dict(chosen)
    quieten(environment)

    assert builder_environment(environment)["TF_CPP_MIN_LOG_LEVEL"] == chosen.get("TF_CPP_MIN_LOG_LEVEL", "2")

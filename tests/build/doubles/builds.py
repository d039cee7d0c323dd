"""Builds by the double of a worker, and what is left of them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from server.build import (
    Builder,
    BuildLimits,
    BuildRequest,
    ImportSource,
    Progress,
)

__all__ = [
    "DOUBLE",
    "ENVIRONMENT",
    "ROOT",
    "builder",
    "children",
    "ignore",
    "is_running",
    "open_descriptors",
    "request",
    "until",
    "worker_pid",
]

ROOT = Path(__file__).parents[3]
DOUBLE = Path(__file__).with_name("worker.py")
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}


def ignore(progress: Progress) -> None:
    """Take the progress of a build that nobody looks at."""


def builder(behaviour: str, **limits: Any) -> Builder:
    return Builder(
        limits=BuildLimits(**limits), command=(sys.executable, str(DOUBLE), behaviour), environment=ENVIRONMENT
    )


def request(directory: Path, name: str = "digits") -> BuildRequest:
    output = directory / f"{name}-output"
    output.mkdir()
    return BuildRequest(
        name=name,
        version=3,
        spec={"max_batch": 8},
        source=ImportSource(target="models.digits:predict"),
        source_dir=directory / "source",
        output_dir=output,
        import_packages=("models",),
        batch_limit=16,
    )


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def worker_pid(output: Path) -> int:
    return int((output / "pid").read_text())


async def until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.005)


def children(output: Path) -> list[int]:
    found: list[int] = json.loads((output / "children.json").read_text())
    return found

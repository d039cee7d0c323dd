"""The driver in a process of its own, on a core of its own, so that nothing that watches it slows it down."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Self

from loadtests import driver
from loadtests.driver import Measurement
from loadtests.workload import load

__all__ = ["DriverProcess", "pin"]


class DriverProcess:
    """Runs ``loadtests.driver`` elsewhere; workloads are named by their files and read once."""

    def __init__(self, *, core: int | None = None) -> None:
        # Spawned, not forked: a copy of a process with TensorFlow's threads in it would hang.
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=pin, initargs=(core,))

    def __enter__(self) -> Self:
        self._pool.submit(os.getpid).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def drive(
        self, url: str, workload: Path, *, callers: int, warmup_s: float = 0.3, duration_s: float = 1.0
    ) -> Measurement:
        """Do what ``driver.drive`` does, there."""
        return self._pool.submit(_drive, url, workload, callers, warmup_s, duration_s).result()

    def send_each_once(self, url: str, workload: Path, *, callers: int) -> tuple[Measurement, list[bytes]]:
        """Do what ``driver.send_each_once`` does, there."""
        return self._pool.submit(_send_each_once, url, workload, callers).result()


_load = functools.cache(load)


def pin(core: int | None) -> None:
    """Run this process on one core from now on; None: on any."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def _drive(url: str, workload: Path, callers: int, warmup_s: float, duration_s: float) -> Measurement:
    return driver.drive(url, _load(workload), callers=callers, warmup_s=warmup_s, duration_s=duration_s)


def _send_each_once(url: str, workload: Path, callers: int) -> tuple[Measurement, list[bytes]]:
    return driver.send_each_once(url, _load(workload), callers=callers)

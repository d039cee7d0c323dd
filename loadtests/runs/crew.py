"""Starts the processes that send, watches them, and puts together what they saw."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from loadtests.keepalive import address_of
from loadtests.runs.choice import Engine
from loadtests.runs.generator import Plan, Progress
from loadtests.runs.load import Load
from loadtests.runs.observations import Observations
from loadtests.runs.questions import Questions

__all__ = ["Crew", "GeneratorFailed"]

#: Seconds beyond warm-up, duration and timeout after which a process counts as hung: it has to start, too.
_GRACE_S = 60.0
_WATCH_S = 0.1


class GeneratorFailed(Exception):
    """A process that sends ended without a result. ``str`` says what it said."""


class Crew:
    """Runs loads against one server, as often as asked.

    Errors of ``run``: GeneratorFailed. ``was_interrupted``: Ctrl-C ended the last run, whose result is what was seen.
    """

    def __init__(
        self,
        url: str,
        questions: Sequence[Questions],
        *,
        ca: str | None = None,
        n_processes: int = 1,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self._url = url
        self._questions = tuple(questions)
        self._ca = ca
        self._n_processes = n_processes
        self._on_progress = on_progress
        self.was_interrupted = False

    def run(self, load: Load, *, engine: Engine = "driver") -> Observations:
        """Carry out a load and return what became of every request."""
        n = 1 if engine == "locust" else min(self._n_processes, load.callers or load.connections)
        with tempfile.TemporaryDirectory(prefix="rowwise-loadtest-") as directory:
            workers = [
                _Worker(self._plan(load, index, n), engine, Path(directory, str(index)), deadline_s=_limit_s(load))
                for index in range(n)
            ]
            try:
                self._watch(workers)
            except KeyboardInterrupt:
                self.was_interrupted = True
                for worker in workers:
                    worker.stop()
                self._watch(workers)
            finally:
                for worker in workers:
                    worker.close()
            return Observations.merged([worker.result() for worker in workers])

    def _plan(self, load: Load, index: int, n: int) -> Plan:
        parts = urlsplit(self._url)
        return Plan(
            address=address_of(self._url, schemes=("http", "https")),
            host=parts.netloc.rpartition("@")[2],
            questions=self._questions,
            load=load.share(index, n),
            is_tls=parts.scheme == "https",
            ca=self._ca,
            index=index,
            n_processes=n,
        )

    def _watch(self, workers: Sequence[_Worker]) -> None:
        while any(worker.is_running() for worker in workers):
            time.sleep(_WATCH_S)
            told = [worker.latest for worker in workers if worker.latest is not None]
            if told:
                self._on_progress(
                    replace(
                        max(told, key=lambda progress: progress.at_s),
                        n_done=sum(progress.n_done for progress in told),
                        n_failed=sum(progress.n_failed for progress in told),
                        p99_ms=max(progress.p99_ms for progress in told),
                    )
                )


class _Worker:
    """One process, and the thread that reads what it says."""

    def __init__(self, plan: Plan, engine: Engine, file: Path, *, deadline_s: float) -> None:
        self._file = file
        self._deadline_s = time.monotonic() + deadline_s
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self.latest: Progress | None = None
        self._said = ""
        # In a session of its own: Ctrl-C is the caller's to hear, who then asks it to stop.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "loadtests.runs.worker", engine, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._process.stdin is not None, "it has a pipe"
        with suppress(BrokenPipeError):
            self._process.stdin.write(pickle.dumps(plan))
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _read(self) -> None:
        output: Any = self._process.stdout
        for line in output:
            with suppress(ValueError, TypeError):
                self.latest = Progress(**json.loads(line))

    def is_running(self) -> bool:
        """Return whether it still is; one that hangs is killed."""
        if self._process.poll() is not None:
            return False
        if time.monotonic() > self._deadline_s:
            self._process.kill()
        return True

    def stop(self) -> None:
        """Ask it to end early."""
        self._process.terminate()

    def result(self) -> Observations:
        """Return what it saw. Errors: GeneratorFailed."""
        if self._process.returncode or not self._file.exists():
            raise GeneratorFailed(self._said or f"exit status {self._process.returncode}")
        seen: Observations = pickle.loads(self._file.read_bytes())
        return seen

    def close(self) -> None:
        """End it, and keep the last line that it said."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        self._said = lines[-1] if lines else ""
        self._errors.close()


def _limit_s(load: Load) -> float:
    return load.warmup_s + load.duration_s + load.timeout_s + _GRACE_S

"""The servers that are compared, each a process of its own on the same core, one core apart from the driver."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from loadtests.ports import free_port
from loadtests.processes import cpu_s, stop_tree
from loadtests.workload import MODELS

__all__ = [
    "Cores",
    "Server",
    "cores_in_use",
    "looped_command",
    "pinned",
    "responder_command",
    "rowwise_command",
]

_READY_PATH = "/v2/health/ready"
_STOP_S = 15.0


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core the servers get and which the driver; None where there is only one for all."""

    server: int | None
    driver: int | None

    @classmethod
    def here(cls) -> Cores:
        """Choose from the cores that this process may use."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(usable[0], usable[1]) if len(usable) > 1 else cls(None, None)


def cores_in_use(*, during_s: float = 1.0) -> float:
    """Return how many cores the machine's processes, all of them, keep busy now, measured for ``during_s``."""

    def ticks() -> int:
        # proc(5): user, nice, system, idle, iowait, irq, softirq, steal, ... of all cores, since the start.
        spent = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(spent) - spent[3] - spent[4]

    before, began = ticks(), time.monotonic()
    time.sleep(during_s)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Run on one core inside the block; processes started there stay on it."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def rowwise_command(port: int, *, store: Path, models: Sequence[str] = (), batch_limit: int | None = None) -> list[str]:
    """Return the command that starts our server; ``models`` are registered if the store lacks them."""
    # gRPC is not what is compared, and its usual port may be another server's.
    command = [sys.executable, "-m", "rowwise", "serve", "--port", str(port), "--grpc-port", "0", "--store", str(store)]
    for model in models:
        command += ["--model", f"{model}={MODELS[model]}:predict"]
    return command if batch_limit is None else [*command, "--batch-limit", str(batch_limit)]


def looped_command(port: int, *, models: Sequence[str]) -> list[str]:
    """Return the command that starts the looped baseline."""
    return [sys.executable, "-m", "loadtests.baseline", *models, "--port", str(port)]


def responder_command(port: int) -> list[str]:
    """Return the command that starts the trivial responder. It is ready for anything at once."""
    return [sys.executable, "-m", "loadtests.responder", "--port", str(port)]


class Server:
    """A server process: started and ready inside the ``with`` block, told to stop at its end.

    ``command`` makes the command line for a port. What the process prints goes to a file; its last lines are
    part of the error if it doesn't become ready. ``on_wait`` is called about ten times a second meanwhile. ``is_ready``
    asks a server by its URL, for others than ours.
    Errors: RuntimeError if it exits or isn't ready within ``timeout_s``.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[int], list[str]],
        *,
        core: int | None = None,
        timeout_s: float = 120.0,
        on_wait: Callable[[], None] | None = None,
        is_ready: Callable[[str], bool] | None = None,
    ) -> None:
        self.name = name
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = command(self.port)
        self._core = core
        self._timeout_s = timeout_s
        self._on_wait = on_wait or (lambda: None)
        self._is_ready = is_ready or (lambda url: _answers(url + _READY_PATH))
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._output = tempfile.TemporaryFile()
        with pinned(self._core):
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ},
            )
        try:
            self._await_ready(self._process)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask the process to stop; kill it if it doesn't within 15 seconds."""
        process, self._process = self._process, None
        if process is None:
            return
        stop_tree(process, within_s=_STOP_S)
        if self._output is not None:
            self._output.close()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None, "asked outside the with block"
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status; None as long as the process runs."""
        assert self._process is not None, "asked outside the with block"
        return self._process.poll()

    def log(self) -> str:
        """Return the end of what the process has printed."""
        return self._last_lines()

    def cpu_s(self) -> float:
        """Return the processor time that the process has used, in seconds."""
        assert self._process is not None, "asked outside the with block"
        return cpu_s(self._process.pid)

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not self._is_ready(self.url):
            if process.poll() is not None:
                raise RuntimeError(f"{self.name} exited with status {process.returncode}:\n{self._last_lines()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} was not ready within {self._timeout_s:.0f} s:\n{self._last_lines()}")
            self._on_wait()
            time.sleep(0.1)

    def _last_lines(self) -> str:
        assert self._output is not None, "asked outside the with block"
        self._output.seek(0)
        return self._output.read()[-2000:].decode(errors="replace")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False

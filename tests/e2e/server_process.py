"""The real server as a process, as an operator starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

ROOT = Path(__file__).resolve().parents[2]
_ANSWERS = re.compile(r"answers on (https?://[\d.]+:\d+)")


class ServerProcess:
    """``rowwise serve`` on a free port. ``log`` is all that it has printed."""

    def __init__(
        self,
        store: Path,
        *options: str,
        environment: dict[str, str] | None = None,
        waits: bool = True,
        command: Sequence[str] = (sys.executable, "-m", "rowwise"),
    ) -> None:
        self.store = store
        # The usual port may be another server's: who wants gRPC takes a free one.
        grpc = () if "--grpc-port" in options else ("--grpc-port", "0")
        self.grpc_address = "" if grpc else f"127.0.0.1:{options[options.index('--grpc-port') + 1]}"
        self._log_path = store.with_name(store.name + f"-{time.monotonic_ns()}.log")
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "serve", "--port", "0", *grpc, "--store", str(store), *options],
                cwd=ROOT,
                # Tests wait for builds, and beside each other.
                env={"ROWWISE_BUILD_NICENESS": "0", **os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.url = self._wait_for_url() if waits else ""

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def _wait_for_url(self) -> str:
        deadline = time.monotonic() + 120.0
        while time.monotonic() < deadline:
            if found := _ANSWERS.search(self.log):
                return found.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"the server did not start:\n{self.log}")

    def wait_ready(self, *, timeout_s: float = 300.0) -> Self:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            answer = httpx.get(self.url + "/v2/health/ready", timeout=60)
            if answer.status_code == 200:
                return self
            time.sleep(0.1)
        raise AssertionError(f"not ready after {timeout_s} s: {answer.text}\n{self.log}")

    def counted(self, series: str) -> float:
        """The sum of a series over its labels, as a scrape gives it."""
        lines = httpx.get(self.url + "/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((series + "{", series + " ")))

    def terminate(self, *, timeout_s: float = 120.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()

"""One worker process from its start to its end, as seen from the event loop.

Its exit is seen through a pidfd, and it is waited for last, so its process id stays its own while signals are sent.
What it prints is read all along and thrown away but for the end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from server.build.disk_use import DiskUse
from server.build.errors import BuildCrashed, BuildDiskExceeded, BuildMemoryExceeded
from server.build.jailing import Confined
from server.build.limits import BuildLimits
from server.build.process_tree import MARK_VARIABLE, kill_marked, resident_bytes
from server.build.request import (
    MAX_LINE_BYTES,
    BuildRequest,
    Done,
    Failed,
    GarbledEvent,
    Progress,
    WorkerChannel,
    event_from_line,
)

__all__ = ["WorkerProcess", "started"]

_LAUNCH = Path(__file__).with_name("launch.py")

#: What is kept of the worker's output for a crash's message.
_TAIL_LINES = 20
_TAIL_LINE_CHARS = 300
_TAIL_BYTES = 2 * _TAIL_LINES * _TAIL_LINE_CHARS

#: Seconds for the kernel to take a killed process down. Only freeing much memory takes any time at all.
_REAP_S = 10.0

#: Seconds of pause for each that a look at memory and disk took.
_PAUSE_PER_LOOK = 10

#: Added by a shell, and by what a jail is made with, to the signal that ended what it waited for.
_BY_SIGNAL = 128

_log = logging.getLogger(__name__)


class _Tail(asyncio.Protocol):
    """Keeps the end of what the worker prints, and throws the rest away."""

    def __init__(self) -> None:
        self._end = b""
        #: Done when nobody can print any more.
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._end = (self._end + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    def lines(self) -> tuple[str, ...]:
        lines = self._end.decode(errors="replace").replace("\0", "").splitlines()[-_TAIL_LINES:]
        return tuple(line[:_TAIL_LINE_CHARS] for line in lines)


class WorkerProcess:
    """A worker process that was started and not yet waited for."""

    def __init__(self, process: subprocess.Popen[bytes], request: BuildRequest, mark: str, *, is_wrapped: bool) -> None:
        self._process = process
        self._is_wrapped = is_wrapped
        self._request = request
        self._mark = mark
        self._loop = asyncio.get_running_loop()
        self._tail = _Tail()
        self._events = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        #: Done when the process has ended; its status is not fetched by that.
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._on_exit)
        #: Reads /proc, so that the event loop doesn't.
        self._watcher = ThreadPoolExecutor(1, thread_name_prefix="rowwise-build-watch")
        self._transports: list[asyncio.BaseTransport] = []

    async def connect(self, events: int, output: int) -> None:
        """Take over the reading ends of the worker's pipes."""
        protocols = (asyncio.StreamReaderProtocol(self._events), self._tail)
        pipes = [os.fdopen(descriptor, "rb", buffering=0) for descriptor in (events, output)]
        with ExitStack() as unconnected:
            for pipe in pipes:
                unconnected.callback(pipe.close)
            for pipe, protocol in zip(pipes, protocols, strict=True):
                transport, _ = await self._loop.connect_read_pipe(partial(_itself, protocol), pipe)
                self._transports.append(transport)
            unconnected.pop_all()

    async def outcome(self, limits: BuildLimits, on_progress: Callable[[Progress], None]) -> Done | Failed:
        """Wait until it says how it ended.

        Errors: BuildMemoryExceeded; BuildDiskExceeded; BuildCrashed; what ``on_progress`` raises.
        """
        said = asyncio.create_task(self._said(on_progress))
        taken = asyncio.create_task(self._too_much(limits))
        name, version = self._request.name, self._request.version
        try:
            await _first(said, taken, self._exited)
            if not said.done() and self._exited.done():
                # What it started may hold the pipe open; after them, its last words can be read to the end.
                await self._kill()
                await asyncio.wait({said})
            if said.done() and (event := said.result()) is not None:
                return event
            if not taken.done():
                # It closed its end of the pipe, and may be about to leave.
                await _first(taken, self._exited)
            raise taken.result() if taken.done() else await self._crash()
        except GarbledEvent as error:
            what = f"said something that is no event of a builder: {error}"
            raise BuildCrashed(name, version, what, output=self._tail.lines()) from error
        finally:
            for task in (said, taken):
                task.cancel()
            await asyncio.gather(said, taken, return_exceptions=True)

    async def left(self, grace_s: float) -> None:
        """Wait until it is gone, at most ``grace_s``."""
        await asyncio.wait({self._exited}, timeout=grace_s)
        if not self._exited.done():
            self.log(f"did not leave within {grace_s:g} s of its result, and is killed")

    async def end(self) -> None:
        """Kill what is left of it and give everything back."""
        try:
            await self._kill()
            await asyncio.wait({self._exited}, timeout=_REAP_S)
        finally:
            for transport in self._transports:
                transport.close()
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._watcher.shutdown(wait=False)
            self._process.poll()

    def kill_group(self) -> None:
        """Kill its process group now, without waiting for anything."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def log(self, what: str) -> None:
        """Log what it did, with the end of its output."""
        output = "\n".join(self._tail.lines())
        _log.warning(
            "the builder of version %d of model %r %s%s",
            self._request.version,
            self._request.name,
            what,
            f"; the end of its output:\n{output}" if output else "",
        )

    async def _said(self, on_progress: Callable[[Progress], None]) -> Done | Failed | None:
        while True:
            try:
                line = await self._events.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return None
            except asyncio.LimitOverrunError as error:
                raise GarbledEvent(f"a line of over {MAX_LINE_BYTES} bytes") from error
            event = event_from_line(line)
            if not isinstance(event, Progress):
                return event
            on_progress(event)
            # A flood of events must not hold up the event loop: what is buffered is read without a pause.
            await asyncio.sleep(0)

    async def _too_much(self, limits: BuildLimits) -> BuildMemoryExceeded | BuildDiskExceeded:
        """Return once it has taken more than it may."""
        name, version = self._request.name, self._request.version
        written = (self._request.output_dir, self._request.source_dir)
        disk = DiskUse([top for top in written if top.exists()], limit_bytes=limits.build_disk_bytes)
        look_at_disk_s = self._loop.time()
        while True:
            began_s = self._loop.time()
            used = await self._loop.run_in_executor(self._watcher, resident_bytes, self._process.pid)
            if used > limits.build_memory_bytes:
                self.log("ran into build_memory_bytes")
                return BuildMemoryExceeded(name, version, limit_bytes=limits.build_memory_bytes, used_bytes=used)
            if self._loop.time() >= look_at_disk_s:
                used = await self._loop.run_in_executor(self._watcher, disk.used)
                look_at_disk_s = self._loop.time() + limits.disk_interval_s
                if used > limits.build_disk_bytes:
                    self.log("ran into build_disk_bytes")
                    return BuildDiskExceeded(name, version, limit_bytes=limits.build_disk_bytes, used_bytes=used)
            # Who has very many processes or files is looked at less often, so that looking costs the server little.
            took_s = self._loop.time() - began_s
            await asyncio.sleep(max(limits.memory_interval_s, _PAUSE_PER_LOOK * took_s))

    async def _crash(self) -> BuildCrashed:
        name, version = self._request.name, self._request.version
        code, status = self._exit_status()
        await self._kill()
        # Its last writer gone, the output ends; what it wrote last may still be in the pipe.
        await asyncio.wait({self._tail.ended}, timeout=_REAP_S)
        output = tuple(map(self._request.without_paths, self._tail.lines()))
        if code == os.CLD_EXITED and self._is_wrapped and status > _BY_SIGNAL:
            code, status = os.CLD_KILLED, status - _BY_SIGNAL
        if code == os.CLD_EXITED:
            self.log(f"left with exit code {status} and no result")
            return BuildCrashed.by_exit(name, version, status, output=output)
        self.log(f"was killed by signal {status}")
        return BuildCrashed.by_signal(name, version, status, output=output)

    def _exit_status(self) -> tuple[int, int]:
        """Look at how it ended without fetching it, so that the process id stays taken until everything is killed."""
        assert self._exited.done(), "it has ended, so this doesn't wait"
        status = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        assert status is not None, "only WNOHANG can find nothing"
        return status.si_code, status.si_status

    async def _kill(self) -> None:
        self.kill_group()
        await self._loop.run_in_executor(self._watcher, kill_marked, self._process.pid, self._mark)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        if not self._exited.done():
            self._exited.set_result(None)


async def _first(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def _itself(protocol: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    return protocol


@asynccontextmanager
async def started(confined: Confined, request: BuildRequest, *, niceness: int) -> AsyncIterator[WorkerProcess]:
    """Start a worker; when the block is left, however, kill what is left of it."""
    mark = secrets.token_hex(16)
    process, events, output = _spawn(confined, {**confined.environment, MARK_VARIABLE: mark}, request, niceness)
    worker = WorkerProcess(process, request, mark, is_wrapped=confined.is_wrapped)
    try:
        await worker.connect(events, output)
        yield worker
    finally:
        worker.kill_group()
        # Shielded: whoever is cancelled twice leaves, the ending goes on.
        ending = asyncio.create_task(worker.end())
        await asyncio.shield(ending)


def _spawn(
    confined: Confined, environment: Mapping[str, str], request: BuildRequest, niceness: int
) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start the process; return it with the descriptors of its events and its output. Errors: BuildCrashed."""
    with ExitStack() as childs, ExitStack() as ours:
        # In memory, not a pipe: a worker that doesn't read its request must not block whoever writes it.
        stdin = os.memfd_create("build-request")
        childs.callback(os.close, stdin)
        with os.fdopen(os.dup(stdin), "wb") as file:
            file.write(json.dumps(request.to_json()).encode())
        os.lseek(stdin, 0, os.SEEK_SET)
        events, events_writer = os.pipe()
        output, output_writer = os.pipe()
        for descriptor in (events_writer, output_writer):
            childs.callback(os.close, descriptor)
        for descriptor in (events, output):
            ours.callback(os.close, descriptor)
        # What makes a jail makes directories that another user has to enter; the jail's last step sets it again.
        umask = "022" if confined.is_wrapped else "077"
        launch = (sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid()), str(niceness), umask)
        try:
            process = subprocess.Popen(
                [*launch, *confined.command, *WorkerChannel.arguments(events_writer)],
                stdin=stdin,
                stdout=output_writer,
                stderr=output_writer,
                pass_fds=(events_writer,),
                start_new_session=True,
                # Unbuffered and with a traceback for signals, so that a crash has an output to show.
                env={"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **environment},
            )
        except OSError as error:
            what = f"could not be started: {error.strerror or error}"
            raise BuildCrashed(request.name, request.version, what) from error
        ours.pop_all()
        return process, events, output

"""Carries out what ``supervision`` decides: one thread, no event loop; it waits for signals and for children's ends."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from server.http_listening import bind_beside, listen_shared, reserve
from server.logs import change_level, log_to_stderr
from server.processes import ProcessTable, write_table
from server.reloading import Reloading
from server.rights import AuditLog, Keyring, Rates
from server.settings import Settings
from server.supervise.orders import Orders
from server.supervise.runtime_directory import RuntimeDirectory
from server.supervise.supervision import CloseDoor, CloseDoors, End, Instruction, Signal, Start, Supervision
from server.supervise.told_settings import write_settings
from server.tls import Tls

__all__ = ["Supervisor", "supervise"]

_log = logging.getLogger("rowwise")

_CHILD = Path(__file__).with_name("child.py")
#: Told by signals, with what is done about them.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def supervise(settings: Settings) -> int:
    """Run the server as several processes until SIGTERM or SIGINT. Returns the exit code.

    Errors are printed as a sentence: a port in use, no room for the private directory.
    """
    log_to_stderr(settings.log_level, "supervisor", log_format=settings.log_format)
    try:
        # What is wrong with files is said now; each process opens them for itself.
        Tls.of(settings)
        Keyring.read(token=None, entries=settings.tokens, path=settings.tokens_file, rates=Rates())
        AuditLog(settings.audit_log).close()
        listeners = listen_shared(settings.host, settings.port, n=settings.http_workers)
        if settings.grpc_port:
            # The engine takes it, again and again if it has to: what is in use now is said now.
            reserve(settings.host, settings.grpc_port, option="--grpc-port").close()
        runtime = RuntimeDirectory.make()
    except (OSError, ValueError) as error:
        print(f"rowwise: {error}", file=sys.stderr)  # noqa: T201 - said before there is anything to log to
        return 1
    try:
        return Supervisor(settings, runtime, listeners).run()
    finally:
        shutil.rmtree(runtime.path, ignore_errors=True)


class Supervisor:
    """The children's processes. ``listeners`` are as many as there are workers."""

    def __init__(self, settings: Settings, runtime: RuntimeDirectory, listeners: list[socket.socket]) -> None:
        self._settings = settings
        self._runtime = runtime
        self._listeners = {f"worker {number}": listener for number, listener in enumerate(listeners, 1)}
        self._address: tuple[str, int] = listeners[0].getsockname()[:2]
        self._supervision = Supervision(tuple(self._listeners), settings.grace_s)
        self._reloading = Reloading(settings, self._pass_on)
        #: What is to be done about settings that have just changed.
        self._instructions: list[Instruction] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        #: Descriptors that become readable when a child has ended, to its name.
        self._pidfds: dict[int, str] = {}
        self._poll = select.poll()
        self._restarts: dict[str, int] = {}

    def run(self) -> int:
        """Run until every child has ended. Returns the exit code."""
        clock = time.monotonic
        with _signals() as told:
            self._poll.register(told, select.POLLIN)
            instructions = self._supervision.start(clock())
            while (code := self._carry_out(instructions)) is None:
                next_s = self._supervision.next_s()
                wait_ms = None if next_s is None else max(0.0, next_s - clock()) * 1e3 + 1
                instructions = []
                for descriptor, _ in self._poll.poll(wait_ms):
                    if descriptor == told:
                        for number in os.read(told, 64):
                            instructions += self._signalled(number, clock())
                    else:
                        instructions += self._ended(descriptor, clock())
                instructions += self._supervision.due(clock())
        return code

    def _signalled(self, number: int, now_s: float) -> list[Instruction]:
        if number == signal.SIGHUP:
            self._reloading.reload()
            if self._has_files() and not self._instructions:
                self._pass_on(self._settings)  # they may have changed
            instructions, self._instructions = self._instructions, []
            return instructions
        _log.info("stopping: %s", signal.Signals(number).name)
        return self._supervision.stop(now_s)

    def _has_files(self) -> bool:
        """Whether settings name files that each process reads or writes for itself."""
        settings = self._settings
        return not (settings.tls_certificate is settings.tokens_file is settings.audit_log is None)

    def _pass_on(self, changed: Settings) -> None:
        try:
            write_settings(changed, self._runtime.settings)
        except OSError as error:
            _log.error("SIGHUP: what has changed can't be passed on: %s", error.strerror or error)
            return
        self._settings = changed
        self._supervision.grace_s = changed.grace_s
        change_level(changed.log_level)
        self._instructions += self._supervision.hang_up()

    def _ended(self, pidfd: int, now_s: float) -> list[Instruction]:
        name = self._pidfds.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        code = self._processes.pop(name).wait()
        if not self._supervision.is_stopping:
            _log.error("%s ended (%s)", name, f"signal {-code}" if code < 0 else f"exit code {code}")
        return self._supervision.exited(name, code, now_s)

    def _carry_out(self, instructions: list[Instruction]) -> int | None:
        for instruction in instructions:
            match instruction:
                case Start(name):
                    self._start(name)
                case Signal(name, number):
                    if name in self._processes:
                        self._processes[name].send_signal(number)
                case CloseDoor(name):
                    self._listeners[name].close()
                case CloseDoors():
                    for listener in self._listeners.values():
                        listener.close()
                case End(code):
                    return code
        return None

    def _start(self, name: str) -> None:
        listener = self._listeners.get(name)
        if listener is not None and listener.fileno() < 0:
            listener = self._listeners[name] = bind_beside(*self._address)
        orders = Orders(
            name=name,
            workers=tuple(self._listeners),
            settings=self._settings,
            runtime=self._runtime,
            supervisor_pid=os.getpid(),
            listener=None if listener is None else listener.fileno(),
        )
        stdin = orders.to_file()
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", str(_CHILD), name],
                stdin=stdin,
                pass_fds=() if listener is None else (listener.fileno(),),
                # Ctrl-C is for the supervisor, which stops the others in their order.
                start_new_session=True,
            )
        finally:
            os.close(stdin)
        pidfd = os.pidfd_open(process.pid)
        self._processes[name] = process
        self._pidfds[pidfd] = name
        self._poll.register(pidfd, select.POLLIN)
        self._restarts[name] = self._restarts.get(name, -1) + 1
        self._tell_processes()
        _log.debug("%s is process %d", name, process.pid)

    def _tell_processes(self) -> None:
        """Say which processes there are, for whoever is asked about them."""
        pids = {name: running.pid for name, running in self._processes.items()}
        try:
            write_table(
                ProcessTable(pids={"supervisor": os.getpid(), **pids}, restarts=self._restarts), self._runtime.processes
            )
        except OSError as error:
            _log.error("metrics will not know of a new process: %s", error.strerror or error)


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """Turn signals into bytes that can be waited for: yield the descriptor to read them from."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {number: signal.signal(number, lambda _number, _frame: None) for number in _SIGNALS}
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)

"""The audit log: JSON lines that say who did what to which model, from where, and what came of it.

Rules:

1. What changes something is written before it is done ("asked"), on the disk (fsync); where that fails it is not done.
   Its outcome is a second line ("answered"), on the disk before the caller has it. So a line without its second tells
   of what a crash cut off.
2. Who is refused gets one line ("refused"), as the kernel writes it, and no more than some a second: strangers could
   fill the disk. What was left out is counted in the next one.
3. A line is written by one call at the end of the file, which other processes may write to. After one that was cut off,
   by a full disk, the next begins on a line of its own.
4. There are no inputs, no tokens and no query strings in it. Names that strangers made up are cut.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from server.rights.rates import Rates

__all__ = ["AuditLog", "AuditRecord"]

_log = logging.getLogger("rowwise")

_REFUSED_PER_S = 10.0
_REFUSED_BURST = 100.0
_MAX_NAME_CHARS = 120


@dataclass(slots=True, kw_only=True)
class AuditRecord:
    """One request: ``what`` is its method and the form of its path, or the name of a gRPC method."""

    who: str
    what: str
    request_id: str
    host: str | None
    model: str | None = None
    version: int | str | None = None


class AuditLog:
    """Writes to ``path``; None: nothing is written, and nothing depends on it."""

    def __init__(
        self,
        path: Path | None,
        *,
        on_failure: Callable[[], object] = lambda: None,
        now_s: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``on_failure`` is called for each line that can't be written, one at a time, on any thread.

        Errors: ValueError if the file can't be opened.
        """
        self._path = path
        self._on_failure = on_failure
        self._now_s = now_s
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._is_torn = False
        self._refusing = Rates(clock=clock).rate(b"refused", per_s=_REFUSED_PER_S, burst=_REFUSED_BURST)
        self._n_left_out = 0
        if path is not None:
            try:
                self._descriptor = _open(path)
            except OSError as error:
                raise ValueError(f"the audit log {str(path)!r} can't be written: {error.strerror or error}") from None

    def reopen(self) -> None:
        """Go on in a new file of the same name: the old one was moved away."""
        if self._path is None:
            return
        try:
            new = _open(self._path)
        except OSError as error:
            _log.error("the audit log goes on in its old file: %s", error.strerror or error)
            return
        with self._lock:
            old, self._descriptor, self._is_torn = self._descriptor, new, False
        if old is not None:
            os.close(old)

    async def asked(self, record: AuditRecord) -> None:
        """Write that something is about to be done. Errors: OSError; then it must not be done."""
        if self._descriptor is not None:
            await asyncio.to_thread(self._write, self._line("asked", record), lasting=True)

    async def answered(self, record: AuditRecord, result: str) -> None:
        """Write what came of it."""
        if self._descriptor is not None:
            try:
                await asyncio.to_thread(self._write, self._line("answered", record, result=result), lasting=True)
            except OSError as error:
                _log.error("the audit log lacks the outcome of request %s: %s", record.request_id, error.strerror)

    def refused(self, record: AuditRecord, result: str) -> None:
        """Write that somebody was sent away."""
        if self._descriptor is None:
            return
        if self._refusing.take():
            self._n_left_out += 1
            return
        more = {"left_out": self._n_left_out} if self._n_left_out else {}
        try:
            self._write(self._line("refused", record, result=result, **more), lasting=False)
        except OSError as error:
            _log.error("the audit log lacks a refusal: %s", error.strerror)
        else:
            self._n_left_out = 0

    def close(self) -> None:
        """Write nothing more."""
        with self._lock:
            old, self._descriptor = self._descriptor, None
        if old is not None:
            os.close(old)

    def _line(self, event: str, record: AuditRecord, **more: str | int) -> bytes:
        told = {
            "at": datetime.fromtimestamp(self._now_s(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": event,
            "who": record.who,
            "what": record.what,
            "model": None if record.model is None else record.model[:_MAX_NAME_CHARS],
            "version": record.version,
            "from": record.host,
            "request_id": record.request_id,
            **more,
        }
        return json.dumps({key: value for key, value in told.items() if value is not None}).encode("ascii") + b"\n"

    def _write(self, line: bytes, *, lasting: bool) -> None:
        with self._lock:
            if self._descriptor is None:
                return
            try:
                self._append(self._descriptor, line, lasting=lasting)
            except OSError:
                self._on_failure()
                raise

    def _append(self, descriptor: int, line: bytes, *, lasting: bool) -> None:
        whole = b"\n" + line if self._is_torn else line
        n_written = os.write(descriptor, whole)
        # The newline alone may have got out: then the next line needs none, and an empty one harms nobody.
        self._is_torn = n_written < len(whole)
        if self._is_torn:
            raise OSError(28, "no room for a whole line")
        if lasting:
            os.fsync(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

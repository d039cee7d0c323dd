"""The audit log's part in a request: what changes something is written before and after it is done."""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from server.rights import AuditLog, AuditRecord
from server.web.bodies import Message, Receive, Send
from server.web.errors import AuditUnwritable
from server.web.front import App, Scope

__all__ = ["Auditing", "ask", "audited", "note_model", "note_version"]

#: Key in the scope of what is being done, once it is known.
_RECORD = "rowwise.audit_record"


class Auditing:
    """An ASGI middleware that writes what came of requests that ``ask`` was called for."""

    def __init__(self, app: App, audit: AuditLog) -> None:
        self._app = app
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""

        async def send_after_writing(message: Message) -> None:
            if message["type"] == "http.response.start" and (record := scope.pop(_RECORD, None)) is not None:
                await self._audit.answered(record, str(message["status"]))
            await send(message)

        try:
            await self._app(scope, receive, send_after_writing)
        except BaseException:
            if (record := scope.pop(_RECORD, None)) is not None:
                await self._audit.answered(record, "500")
            raise


async def ask(audit: AuditLog, record: AuditRecord, scope: MutableMapping[str, Any]) -> None:
    """Write what is about to be done. Errors: AuditUnwritable; then it is not to be done."""
    await _ask(audit, record)
    scope[_RECORD] = record


def note_version(scope: MutableMapping[str, Any], version: int) -> None:
    """Say which version a request was found to be about."""
    if (record := scope.get(_RECORD)) is not None:
        record.version = version


def note_model(scope: MutableMapping[str, Any], model: str) -> None:
    """Say which model a request was found to be about."""
    if (record := scope.get(_RECORD)) is not None:
        record.model = model


@asynccontextmanager
async def audited(audit: AuditLog, record: AuditRecord) -> AsyncIterator[None]:
    """Do what is within, and write what came of it. Errors: AuditUnwritable, before anything is done."""
    await _ask(audit, record)
    try:
        yield
    except BaseException as error:
        await audit.answered(record, type(error).__name__)
        raise
    await audit.answered(record, "OK")


async def _ask(audit: AuditLog, record: AuditRecord) -> None:
    try:
        await audit.asked(record)
    except OSError as error:
        raise AuditUnwritable(error.strerror or str(error)) from None

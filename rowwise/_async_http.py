"""The same pool on an event loop."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import httpx

from rowwise._http import Target
from rowwise._steps import Pause, Send, Step, Steps
from rowwise.errors import ConnectionFailed

__all__ = ["AsyncConnection"]

_Result = TypeVar("_Result")


class AsyncConnection:
    """Carries out steps on the event loop. It belongs to one loop, and not to a child after a fork."""

    def __init__(self, target: Target, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._target = target
        self._transport = httpx.AsyncHTTPTransport(**target.options) if transport is None else transport
        self._is_closed = False

    async def aclose(self) -> None:
        """Close every pooled connection."""
        self._is_closed = True
        await self._transport.aclose()

    async def run(self, steps: Steps[_Result]) -> _Result:
        """Carry out a call and return its result. Errors: what the call raises."""
        outcome: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(outcome) if error is None else steps.throw(error)
            except StopIteration as stop:
                result: _Result = stop.value
                return result
            outcome = error = None
            try:
                outcome = await self._do(step)
            except BaseException as raised:  # noqa: BLE001 - the call cleans up, and raises it again
                error = raised

    async def _do(self, step: Step) -> Any:
        if isinstance(step, Send):
            return await self._send(step)
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        return await asyncio.to_thread(step.do)

    async def _send(self, step: Send) -> httpx.Response:
        if self._is_closed:
            raise ConnectionFailed("the client is closed: make another one")
        request = self._target.request(step)
        try:
            async with asyncio.timeout(None if step.is_long else step.timeout_s):
                answer = await self._transport.handle_async_request(request)
                try:
                    await answer.aread()
                finally:
                    await answer.aclose()
        except (httpx.HTTPError, httpx.StreamError, TimeoutError) as error:
            raise self._target.failure(step, error) from error
        return self._target.checked(answer)

"""The same pool on an event loop."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import httpx

from rowwise._http import Target
from rowwise._pool import Stack
from rowwise._steps import Pause, Send, Step, Steps
from rowwise.errors import ConnectionFailed

__all__ = ["AsyncConnection"]

_Result = TypeVar("_Result")


class AsyncConnection:
    """Carries out steps on the event loop. It belongs to one loop, and not to a child after a fork."""

    def __init__(self, target: Target, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._target = target
        #: One that was given is for all requests.
        self._given = transport
        self._stack: Stack[httpx.AsyncBaseTransport] = Stack(lambda: httpx.AsyncHTTPTransport(**target.options))
        self._places = asyncio.Semaphore(target.connections)
        self._is_closed = False

    async def aclose(self) -> None:
        """Close every connection that is not in use."""
        self._is_closed = True
        for transport in self._stack.all_free() if self._given is None else [self._given]:
            await transport.aclose()

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
                answer = await self._answer(request)
        except (httpx.HTTPError, httpx.StreamError, TimeoutError) as error:
            raise self._target.failure(step, error) from error
        return self._target.checked(answer)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        if self._given is not None:
            return await _read(self._given, request)
        async with self._places:
            transport = self._stack.take()
            try:
                return await _read(transport, request)
            finally:
                # What broke, or was cancelled, it has closed.
                self._stack.give_back(transport)
                if self._is_closed:
                    await self.aclose()


async def _read(transport: httpx.AsyncBaseTransport, request: httpx.Request) -> httpx.Response:
    answer = await transport.handle_async_request(request)
    try:
        await answer.aread()
    finally:
        await answer.aclose()
    return answer

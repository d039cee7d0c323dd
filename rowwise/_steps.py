"""What a client's call does, as steps: written once, carried out by a thread or by an event loop.

A call is a generator. It yields steps (send this, wait so long, do this work) and is given their outcomes; it returns
what the caller gets. So ``Client`` and ``AsyncClient`` differ in who carries steps out, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = ["Pause", "Send", "Step", "Steps", "Work"]

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send one request; the outcome is the answer, an ``httpx.Response`` that was read and is a success.

    ``timeout_s`` bounds it as a whole, None takes the client's own; where ``is_long`` it bounds each wait for something
    to move. ``repeats``: whether doing it twice is as doing it once, so that it may be sent again when it is not known
    what came of it. ``tells_deadline``: whether the server is told how long its answer is waited for.
    """

    method: str
    path: str
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Parts of a multipart body, as httpx takes them.
    files: Any = None
    timeout_s: float | None = None
    is_long: bool = False
    repeats: bool = False
    tells_deadline: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Do something that takes a while; the outcome is what it returns."""

    do: Callable[[], Any]


Step = Send | Pause | Work
#: A call: yields steps, is sent their outcomes, returns its result. Errors of a step are raised where it was yielded.
Steps = Generator[Step, Any, _Result]

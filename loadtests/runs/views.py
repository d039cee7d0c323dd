"""What is shown while a load test runs: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import IO, Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from loadtests.runs.generator import Progress as Seen

__all__ = ["BarView", "LineView", "View", "view_for"]

#: Seconds between two lines.
_EVERY_S = 5.0


class View(Protocol):
    """Is told what is going on."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def stage(self, what: str, *, length_s: float | None = None) -> None:
        """Something else has begun, which takes so long if that is known."""

    def show(self, seen: Seen) -> None:
        """The load is this far."""


class BarView:
    """A spinner, the stage, a bar, and the last half second in numbers."""

    def __init__(self, stream: IO[str]) -> None:
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[seen]}"),
            TimeElapsedColumn(),
            console=Console(file=stream),
            transient=True,
        )
        self._task: Any = self._bar.add_task("starting", total=None, seen="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def stage(self, what: str, *, length_s: float | None = None) -> None:
        """Begin a bar."""
        self._bar.reset(self._task, description=what, total=length_s, seen="")

    def show(self, seen: Seen) -> None:
        """Move it."""
        self._bar.update(self._task, completed=seen.at_s, seen=_sentence(seen))


class LineView:
    """A line for each stage, and one every five seconds."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._said_s = time.monotonic()
        self._last: Seen | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def stage(self, what: str, *, length_s: float | None = None) -> None:
        """Say it."""
        self._say(what if length_s is None else f"{what}, {length_s:g} s")

    def show(self, seen: Seen) -> None:
        """Say it, if it is time to, and if there is news."""
        if time.monotonic() - self._said_s >= _EVERY_S and seen != self._last:
            self._last = seen
            self._say(f"  {seen.at_s:.0f} s: {_sentence(seen)}")

    def _say(self, text: str) -> None:
        self._said_s = time.monotonic()
        print(text, file=self._stream, flush=True)


def view_for(stream: IO[str] | None = None) -> View:
    """Return the view that suits a stream; None: standard error."""
    stream = sys.stderr if stream is None else stream
    return BarView(stream) if stream.isatty() else LineView(stream)


def _sentence(seen: Seen) -> str:
    failed = f", {seen.n_failed:,} failed" if seen.n_failed else ""
    return f"{seen.n_done:,} requests{failed}, p50 {seen.p50_ms:.3g} ms, p99 {seen.p99_ms:.3g} ms"

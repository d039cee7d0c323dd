"""What a person sees while a registration runs: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any, Protocol, Self

from rowwise.version_status import Stage

__all__ = ["BarView", "RegistrationView", "SilentView", "TellingView", "view_for"]

_SENTENCES = {
    "trace": "tracing",
    "pack": "packing",
    "upload": "uploading",
    "queued": "waiting for the builder",
    "vectorize": "vectorizing",
    "check": "checking against the function",
    "derive": "differentiating",
    "measure": "measuring costs",
    "write": "writing",
    "load": "loading and warming",
    "rounds": "measuring both forms in turns",
}


class RegistrationView(Protocol):
    """Shown the stages of one registration, each as often as it moves."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, stage: Stage) -> None:
        """Show that ``stage`` is this far."""


class SilentView:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, stage: Stage) -> None:
        """Show nothing."""


class BarView:
    """One line with the stage, a bar and the time that has passed; the line goes when the registration ends."""

    def __init__(self, title: str, *, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        console = Console(file=stream)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.fields[title]}[/bold] {task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=console.is_terminal,  # in a file the last state is kept, as its only line
        )
        self._task: Any = self._bar.add_task("starting", total=None, title=title)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, stage: Stage) -> None:
        """Move the bar; a stage of unknown length pulses."""
        self._bar.update(
            self._task,
            description=_SENTENCES.get(stage.name, stage.name),
            completed=stage.done,
            total=stage.total or None,
        )


class TellingView(SilentView):
    """Calls ``on_stage`` with each stage, and lets another view show it."""

    def __init__(self, view: RegistrationView, on_stage: Callable[[Stage], None]) -> None:
        self._view = view
        self._on_stage = on_stage

    def __enter__(self) -> Self:
        self._view.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._view.__exit__(None, None, None)

    def show(self, stage: Stage) -> None:
        """Tell and show."""
        self._on_stage(stage)
        self._view.show(stage)


def view_for(
    title: str,
    *,
    progress: bool | None,
    stream: IO[str] | None = None,
    on_stage: Callable[[Stage], None] | None = None,
) -> RegistrationView:
    """Return the view to use. ``progress`` None: a bar if ``stream`` (standard error) is a terminal."""
    stream = sys.stderr if stream is None else stream
    shown = stream.isatty() if progress is None else progress
    view = BarView(title, stream=stream) if shown else SilentView()
    return view if on_stage is None else TellingView(view, on_stage)

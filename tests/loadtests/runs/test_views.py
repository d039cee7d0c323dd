"""What is shown meanwhile: plain lines, not too many, where nobody looks at a terminal."""

from __future__ import annotations

import io

import pytest

from loadtests.runs import views
from loadtests.runs.generator import Progress
from loadtests.runs.views import BarView, LineView, view_for


def progress(at_s: float, n_failed: int = 0) -> Progress:
    return Progress(at_s=at_s, n_done=int(100 * at_s), n_failed=n_failed, p50_ms=1.5, p99_ms=12.0)


def test_a_line_every_few_seconds_and_only_if_there_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(views.time, "monotonic", lambda: now_s)
    stream = io.StringIO()
    with LineView(stream) as view:
        view.stage("8 callers", length_s=30)
        for tick in range(1, 61):
            now_s = tick / 2
            view.show(progress(now_s, n_failed=3 if now_s > 6 else 0))
        view.show(progress(30.0))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "8 callers, 30 s"
    assert lines[1] == "  5 s: 500 requests, p50 1.5 ms, p99 12 ms"
    assert lines[2] == "  10 s: 1,000 requests, 3 failed, p50 1.5 ms, p99 12 ms"
    assert len(lines) == 7


def test_a_terminal_has_a_bar_and_a_pipe_has_lines() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(view_for(io.StringIO()), LineView)
    view = view_for(Terminal())
    assert isinstance(view, BarView)
    with view:
        view.stage("8 callers", length_s=2)
        view.show(progress(1.0))

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from rowwise._steps import Pause, Steps
from rowwise._watch import wait_until_available
from rowwise.errors import BuildFailed, ConnectionFailed, NotFound, TimedOut
from rowwise.progress import BarView, SilentView, view_for
from rowwise.version_status import Stage, VersionStatus


class ManualClock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept_s: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


class Recorder(SilentView):
    def __init__(self) -> None:
        self.stages: list[Stage] = []

    def show(self, stage: Stage) -> None:
        self.stages.append(stage)


def status(state: str, *, stage: Stage | None = None, reason: str = "") -> VersionStatus:
    return VersionStatus(model="m", version=1, state=state, stage=stage, reason=reason)


def answering(*answers: VersionStatus | Exception) -> Callable[[], VersionStatus]:
    """Give each answer once, the last one for ever."""
    rest = list(answers)

    def fetch() -> VersionStatus:
        answer = rest.pop(0) if len(rest) > 1 else rest[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return fetch


def carried_out(steps: Steps[VersionStatus], sleep: Callable[[float], None]) -> VersionStatus:
    """Do what is waited for, by a clock."""
    while True:
        try:
            step = next(steps)
        except StopIteration as stop:
            return stop.value
        assert isinstance(step, Pause)
        sleep(step.seconds)


def wait(fetch: Callable[[], VersionStatus], clock: ManualClock, *, timeout_s: float | None = None, **more):
    return carried_out(watching(fetch, clock=clock, timeout_s=timeout_s, **more), clock.sleep)


def watching(fetch: Callable[[], VersionStatus], *, view=None, **more) -> Steps[VersionStatus]:
    def steps() -> Steps[VersionStatus]:
        yield from ()
        return fetch()

    return wait_until_available(steps, view=view or SilentView(), **more)


def test_a_version_that_is_available_is_returned_without_a_sleep():
    clock = ManualClock()

    assert wait(answering(status("AVAILABLE")), clock).state == "AVAILABLE"
    assert clock.slept_s == []


def test_a_version_that_is_not_to_serve_is_waited_for_until_it_is_built():
    answers = answering(status("BUILDING"), status("BUILT"))
    found = wait(answers, ManualClock(), activates=False)
    assert found.state == "BUILT"


def test_polls_slow_down_to_what_a_person_notices():
    clock = ManualClock()

    wait(answering(*[status("BUILDING")] * 30, status("AVAILABLE")), clock)

    assert clock.slept_s[0] == 0.05
    assert clock.slept_s == sorted(clock.slept_s)
    assert clock.slept_s[-1] == 0.5


def test_the_servers_stages_are_shown_and_states_without_one_have_their_own():
    recorder = Recorder()
    measuring = Stage(name="measure", done=3, total=7)

    wait(
        answering(status("BUILDING"), status("BUILDING", stage=measuring), status("LOADING"), status("AVAILABLE")),
        ManualClock(),
        view=recorder,
    )

    assert recorder.stages == [Stage(name="queued"), measuring, Stage(name="load")]


def test_a_short_gap_in_the_connection_is_bridged():
    gap = [ConnectionFailed("restarting")] * 5

    assert wait(answering(*gap, status("AVAILABLE")), ManualClock()).state == "AVAILABLE"


def test_a_server_that_is_gone_for_long_is_reported():
    clock = ManualClock()

    with pytest.raises(ConnectionFailed, match="gone"):
        wait(answering(status("BUILDING"), ConnectionFailed("gone")), clock)

    assert 110 < clock.now_s < 112


def test_a_version_that_was_deleted_meanwhile_ends_the_wait_at_once():
    clock = ManualClock()

    with pytest.raises(NotFound):
        wait(answering(status("BUILDING"), NotFound(404, "no version 1")), clock)

    assert len(clock.slept_s) == 1


def test_the_limit_of_the_wait_is_kept():
    clock = ManualClock()

    with pytest.raises(TimedOut, match="not available within 3 s"):
        wait(answering(status("BUILDING")), clock, timeout_s=3.0)

    assert 103 <= clock.now_s < 104


@pytest.mark.parametrize(("reason", "sentence"), [("out of memory", "out of memory"), ("", "gives no reason")])
def test_a_failed_version_ends_the_wait_with_its_reason(reason, sentence):
    with pytest.raises(BuildFailed, match=sentence):
        wait(answering(status("FAILED", reason=reason)), ManualClock())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_the_stage_and_others_get_nothing():
    terminal, file = Terminal(), io.StringIO()

    for stream in (terminal, file):
        with view_for("digits", progress=None, stream=stream) as view:
            view.show(Stage(name="measure", done=3, total=7))
            view.show(Stage(name="a stage of a later server"))

    assert "digits" in terminal.getvalue()
    assert file.getvalue() == ""


def test_a_bar_shows_how_far_a_stage_is():
    stream = io.StringIO()

    with BarView("digits", stream=stream) as view:
        view.show(Stage(name="measure", done=3, total=7))

    assert "measuring costs" in stream.getvalue()
    assert "3/7" in stream.getvalue()


def test_a_caller_can_ask_for_the_bar_or_forbid_it():
    assert isinstance(view_for("m", progress=True, stream=io.StringIO()), BarView)
    assert isinstance(view_for("m", progress=False, stream=Terminal()), SilentView)

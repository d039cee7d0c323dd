"""Waiting for a registered version: poll its status, more slowly the longer it takes."""

from __future__ import annotations

from collections.abc import Callable

from rowwise._steps import Pause, Steps
from rowwise.errors import BuildFailed, ConnectionFailed, Overloaded, Superseded, TimedOut
from rowwise.progress import RegistrationView
from rowwise.version_status import Stage, VersionStatus

__all__ = ["wait_until_available"]

#: Seconds between two polls: the first is short for models that build at once, the last is what a person notices.
_FIRST_POLL_S = 0.05
_SLOWEST_POLL_S = 0.5
_SLOWING = 1.3
#: A server that can't be asked for this long, seconds, is gone; a shorter gap is a busy or restarting one.
_UNREACHABLE_S = 10.0

#: States on the way to AVAILABLE, and the stage that stands for one whose answer names none.
_ON_THE_WAY = {"BUILDING": "queued", "BUILT": "load", "LOADING": "load"}


def wait_until_available(
    fetch: Callable[[], Steps[VersionStatus]],
    *,
    view: RegistrationView,
    clock: Callable[[], float],
    timeout_s: float | None = None,
    activates: bool = True,
) -> Steps[VersionStatus]:
    """Ask ``fetch`` until the version is AVAILABLE, and return that status.

    ``activates``: False for one that is not to serve once it is built, which is waited for until it is BUILT.
    Units: seconds of ``clock``. Errors: BuildFailed with the server's reason; Superseded; TimedOut after
    ``timeout_s``; what ``fetch`` raises, where it is no passing fault or lasts.
    """
    started_s = answered_s = clock()
    poll_s = _FIRST_POLL_S
    while True:
        try:
            status: VersionStatus | None = yield from fetch()
            answered_s = clock()
        except (ConnectionFailed, Overloaded, TimedOut):
            if clock() - answered_s > _UNREACHABLE_S:
                raise
            status = None
        if status is not None:
            if status.state == "AVAILABLE" or (status.state == "BUILT" and not activates):
                return status
            _raise_if_over(status)
            view.show(status.stage or Stage(name=_ON_THE_WAY[status.state]))
        if timeout_s is not None and clock() - started_s >= timeout_s:
            raise TimedOut(f"the model was not available within {timeout_s:g} s; it may still be building")
        yield Pause(poll_s)
        poll_s = min(poll_s * _SLOWING, _SLOWEST_POLL_S)


def _raise_if_over(status: VersionStatus) -> None:
    if status.state in _ON_THE_WAY:
        return
    if status.state in {"UNLOADING", "UNLOADED"}:
        raise Superseded(
            f"model {status.model!r} version {status.version} was built but is not served ({status.state}): another "
            f"version took over; activate {status.version} to serve it"
        )
    raise BuildFailed(status.model, status.version, status.reason or f"the server gives no reason ({status.state})")

"""What can go wrong between a worker and the engine.

::

    RowwiseError
    └── LinkError
        ├── EngineGone    the engine process ended, or has not started: try again
        └── LinkGarbled   a message that is none: the two ends are not of one version
"""

from __future__ import annotations

from server.errors import RowwiseError

__all__ = ["EngineGone", "LinkError", "LinkGarbled"]


class LinkError(RowwiseError):
    """The link between two processes of the server failed."""


class EngineGone(LinkError):
    """The engine process is not there. ``retry_after_s`` is about the time in which it is started again."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class LinkGarbled(LinkError):
    """A message has another form than it must have."""

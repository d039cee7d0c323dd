"""Which server is embedded in this process, for those who meet a request before it is routed to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.replica.embedded import EmbeddedServer

__all__ = ["Present", "present"]


class Present:
    """Holds it. A process is one replica of one application."""

    def __init__(self) -> None:
        #: None before it has started, and once it stops.
        self.server: EmbeddedServer | None = None


present = Present()

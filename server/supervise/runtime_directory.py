"""The private directory of a server of several processes: the sockets between them, and what they count."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RuntimeDirectory"]

#: A Unix socket's path must fit into 108 bytes (unix(7)).
_MAX_PATH_BYTES = 90


@dataclass(frozen=True, slots=True)
class RuntimeDirectory:
    """Its layout. Nobody but this user can enter it, so who connects to its sockets is one of us."""

    path: Path

    @classmethod
    def make(cls) -> RuntimeDirectory:
        """Make a new one, mode 0700. Errors: OSError; ValueError where temporary files have too long a path."""
        path = Path(tempfile.mkdtemp(prefix="rowwise-"))
        if len(str(path).encode()) > _MAX_PATH_BYTES:
            path.rmdir()
            raise ValueError(f"{str(path.parent)!r} is too long for sockets in it: set TMPDIR to a shorter path")
        return cls(path)

    @property
    def link(self) -> str:
        """The socket of the engine's end of the link."""
        return str(self.path / "link.sock")

    @property
    def http(self) -> Path:
        """The socket of the engine's own HTTP application."""
        return self.path / "http.sock"

    @property
    def settings(self) -> Path:
        """The file of the settings that have changed since the children were started."""
        return self.path / "settings.json"

    @property
    def processes(self) -> Path:
        """The file that says which processes the server is."""
        return self.path / "processes.json"

    @property
    def rates(self) -> Path:
        """The file of the limits of rate, which all processes share."""
        return self.path / "rates"

    def tally(self, name: str) -> Path:
        """The file in which a child counts, and its successor goes on."""
        return self.path / f"{name.replace(' ', '-')}.tally"

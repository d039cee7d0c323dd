"""What a child is told when it is started: by a file in memory on its standard input, as settings hold the token."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.settings import Settings
from server.supervise.runtime_directory import RuntimeDirectory
from server.supervise.told_settings import settings_from_json, settings_to_json

__all__ = ["Orders"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """``name`` says which child it is; ``listener`` is the descriptor of a worker's listening socket."""

    name: str
    workers: Sequence[str]
    settings: Settings
    runtime: RuntimeDirectory
    supervisor_pid: int
    listener: int | None = None

    def to_file(self) -> int:
        """Return the descriptor of a file that ``from_json`` reads, at its beginning."""
        written = {
            "name": self.name,
            "workers": list(self.workers),
            "settings": settings_to_json(self.settings),
            "runtime": str(self.runtime.path),
            "supervisor_pid": self.supervisor_pid,
            "listener": self.listener,
            # Modules are found where the supervisor finds them, whatever directory it was started in.
            "path": sys.path,
        }
        descriptor = os.memfd_create("orders", os.MFD_CLOEXEC)
        with os.fdopen(os.dup(descriptor), "w") as file:
            json.dump(written, file)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Orders:
        """Read what ``to_file`` wrote."""
        return cls(
            name=value["name"],
            workers=tuple(value["workers"]),
            settings=settings_from_json(value["settings"]),
            runtime=RuntimeDirectory(Path(value["runtime"])),
            supervisor_pid=value["supervisor_pid"],
            listener=value["listener"],
        )

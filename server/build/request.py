"""What passes between the supervisor and the worker: one request in, events out.

::

    supervisor                                   worker
        BuildRequest, one JSON object, stdin ──────▶
        ◀────── events, one JSON object a line, on the descriptor that --events-fd names
                  {"event": "stage", "stage": "check", "done": 3, "total": 7}     any number of times
                  {"event": "done"}  or  {"event": "failed", "kind": ..., "message": ...}     once, the last

The worker's standard output and error are for people: nothing there is part of the protocol, so that a model that
prints can't break it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from server.build.source import Source, source_from_json

__all__ = [
    "MAX_LINE_BYTES",
    "STAGES",
    "BuildRequest",
    "Done",
    "Failed",
    "GarbledEvent",
    "Progress",
    "WorkerChannel",
    "event_from_line",
]

#: The stages of a build in their order. ``queued``: waiting for its turn, said by the supervisor itself.
STAGES = ("queued", "trace", "vectorize", "check", "derive", "measure", "write")

#: A longer line is no event of ours.
MAX_LINE_BYTES = 2**20

#: A failure's sentence is for people and for a state file; compilers can write megabytes.
_MAX_MESSAGE_CHARS = 16_000

#: Where this package was imported from.
_INSTALLATION = Path(__file__).parents[2]

_EVENTS_OPTION = "--events-fd"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One version to build.

    ``source_dir`` is the builder's to unpack in, ``output_dir`` exists, is empty, and becomes the artifact.
    ``import_packages`` are the packages whose functions may be imported; ``batch_limit`` bounds the buckets.
    """

    name: str
    version: int
    spec: Mapping[str, Any]
    source: Source
    source_dir: Path
    output_dir: Path
    import_packages: tuple[str, ...] = ()
    batch_limit: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; ``from_json`` takes them back."""
        return {
            "name": self.name,
            "version": self.version,
            "spec": dict(self.spec),
            "source": self.source.to_json(),
            "source_dir": str(self.source_dir),
            "output_dir": str(self.output_dir),
            "import_packages": list(self.import_packages),
            "batch_limit": self.batch_limit,
        }

    def without_paths(self, text: str) -> str:
        """Return a message without where store and server lie: who reads it may be a stranger to this machine."""
        for directory in (self.source_dir, self.output_dir, _INSTALLATION, sys.prefix):
            text = text.replace(f"{directory}/", "")
        return text

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BuildRequest:
        """Build from what ``to_json`` returned. Errors: KeyError and TypeError on anything else."""
        return cls(
            name=value["name"],
            version=value["version"],
            spec=value["spec"],
            source=source_from_json(value["source"]),
            source_dir=Path(value["source_dir"]),
            output_dir=Path(value["output_dir"]),
            import_packages=tuple(value["import_packages"]),
            batch_limit=value["batch_limit"],
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is: ``done`` of ``total`` steps of ``stage``."""

    stage: str
    done: int = 0
    total: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"stage": self.stage, "done": self.done, "total": self.total}


@dataclass(frozen=True, slots=True)
class Failed:
    """The builder refused. ``kind`` is the error's class, ``message`` its sentence."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Done:
    """The artifact is complete."""


class GarbledEvent(Exception):
    """A line that no worker of ours writes. The supervisor ends the build over it; nobody else sees it."""


def event_from_line(line: bytes) -> Progress | Failed | Done:
    """Read one line of the worker's. Errors: GarbledEvent for anything that is not exactly an event."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise GarbledEvent(_shown(line)) from error
    match value:
        case {"event": "stage", "stage": str(stage), "done": int(done), "total": int(total), **rest}:
            if not rest and stage in STAGES and type(done) is type(total) is int and 0 <= done <= total:
                return Progress(stage, done, total)
        case {"event": "failed", "kind": str(kind), "message": str(message), **rest}:
            if not rest:
                return Failed(kind, message)
        case {"event": "done", **rest}:
            if not rest:
                return Done()
    raise GarbledEvent(_shown(line))


class WorkerChannel:
    """The worker's end: the request that it was started with, and where it says how it goes.

    After ``done`` or ``failed`` nothing more may be said.
    """

    def __init__(self, request: BuildRequest, events: BinaryIO) -> None:
        self.request = request
        self._events = events

    @classmethod
    def open(cls, arguments: Sequence[str], stdin: BinaryIO) -> Self:
        """Take over what the supervisor passed: the worker's arguments (without its name) and standard input.

        Errors: ValueError if the process wasn't started by the supervisor.
        """
        if len(arguments) != 2 or arguments[0] != _EVENTS_OPTION or not arguments[1].isdigit():
            raise ValueError(f"a builder is started by the server, with {_EVENTS_OPTION} N; got {list(arguments)}")
        descriptor = int(arguments[1])
        # Processes that the model's code starts must not be able to speak for the builder, or hold its pipe open.
        os.set_inheritable(descriptor, False)
        events = os.fdopen(descriptor, "wb", buffering=0)
        return cls(BuildRequest.from_json(json.loads(stdin.read())), events)

    @staticmethod
    def arguments(descriptor: int) -> tuple[str, ...]:
        """Return the arguments that ``open`` takes, for events on ``descriptor``."""
        return (_EVENTS_OPTION, str(descriptor))

    def progress(self, stage: str, done: int, total: int) -> None:
        """Say how far the build is."""
        assert stage in STAGES, stage
        assert 0 <= done <= total, (stage, done, total)
        self._say({"event": "stage", "stage": stage, "done": done, "total": total})

    def failed(self, error: BaseException) -> None:
        """Say why there will be no artifact."""
        message = self.request.without_paths(str(error) or repr(error))
        if len(message) > _MAX_MESSAGE_CHARS:
            message = message[:_MAX_MESSAGE_CHARS] + f"... ({len(message) - _MAX_MESSAGE_CHARS} characters more)"
        self._say({"event": "failed", "kind": type(error).__name__, "message": message})

    def done(self) -> None:
        """Say that the artifact is complete."""
        self._say({"event": "done"})

    def _say(self, value: Mapping[str, Any]) -> None:
        view = memoryview(json.dumps(value).encode() + b"\n")
        while view:
            view = view[self._events.write(view) :]


def _shown(line: bytes) -> str:
    return repr(line[:80]) + ("..." if len(line) > 80 else "")

"""A builder that copies an artifact that lies ready, when it is told to."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from server.artifact import Manifest
from server.build import BuildRequest, ImportSource, Progress
from server.build.source import Source

__all__ = ["ScriptedBuilder"]


class ScriptedBuilder:
    """Stands for ``Builder``. The import target names what happens: an artifact of ``artifacts``, or an error.

    A build waits for ``gate(version)`` if that was asked for before; ``started`` lists the versions in their order.
    """

    def __init__(self, artifacts: Mapping[str, Path], errors: Mapping[str, Exception]) -> None:
        self._artifacts = artifacts
        self._errors = errors
        self._gates: dict[int, asyncio.Event] = {}
        self.started: list[int] = []
        self.cancelled: list[int] = []

    def gate(self, version: int) -> asyncio.Event:
        """Hold the build of ``version`` back until the event is set."""
        return self._gates.setdefault(version, asyncio.Event())

    async def check(self, source: Source) -> None:
        """Take whatever the import target doesn't name an error for, with ``check:`` before it."""
        assert isinstance(source, ImportSource)
        if f"check:{source.target}" in self._errors:
            raise self._errors[f"check:{source.target}"]

    async def build(self, request: BuildRequest, on_progress: Callable[[Progress], None]) -> None:
        assert isinstance(request.source, ImportSource)
        self.started.append(request.version)
        on_progress(Progress("check", 1, 4))
        if request.version in self._gates:
            try:
                await self._gates[request.version].wait()
            except asyncio.CancelledError:
                self.cancelled.append(request.version)
                raise
        target = request.source.target
        if target in self._errors:
            raise self._errors[target]
        shutil.copytree(self._artifacts[target], request.output_dir, dirs_exist_ok=True)
        manifest = Manifest.read(request.output_dir)
        replace(manifest, name=request.name, version=request.version).write(request.output_dir)

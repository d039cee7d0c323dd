"""Counting what TensorFlow compiles and traces while it should only execute.

Loading a version warms every graph of it, so that requests find nothing left to compile. XLA writes each executable
that it makes into its cache's directory; a file that appears while nothing is being loaded was made for a request.
Functions are traced by nobody in a serving process, which TensorFlow's own counter shows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["AfterReady"]


class AfterReady:
    """Executables compiled for requests. ``directory`` is XLA's cache; None where XLA keeps none, and nothing is known.

    Loads come one at a time, on a thread of their own; ``n_compiled`` is asked for on another one.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._known = self._count()
        self._outside = 0
        self._is_loading = False

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Compile, rightly."""
        self._outside = self.n_compiled
        self._is_loading = True
        try:
            yield
        finally:
            self._known = self._count()
            self._is_loading = False

    @property
    def n_compiled(self) -> int:
        """Executables that were compiled while nothing was loaded."""
        return self._outside if self._is_loading else self._outside + max(0, self._count() - self._known)

    @staticmethod
    def traced_s() -> float:
        """Return the seconds that TensorFlow has spent on tracing functions in this process."""
        session = sys.modules.get("server.engine._session")
        return 0.0 if session is None else float(session.traced_s())

    def _count(self) -> int:
        if self._directory is None:
            return 0
        with suppress(OSError), os.scandir(self._directory) as entries:
            return sum(1 for _ in entries)
        return 0

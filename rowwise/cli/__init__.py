"""The ``rowwise`` command."""

from __future__ import annotations

from rowwise.cli.app import app, main

__all__ = ["app", "main"]

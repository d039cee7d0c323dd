"""Options of ``rowwise serve``: what is served from the start."""

from __future__ import annotations

from rowwise.cli.serve_options.option import ServeOption

__all__ = ["MODELS"]

_PANEL = "Models"

MODELS = (
    ServeOption(
        "models",
        list[str],
        "--model",
        "Register this function at start if the store lacks the model. Repeat for more.",
        panel=_PANEL,
        metavar="NAME=MODULE:FUNCTION",
    ),
    ServeOption(
        "import_packages",
        list[str],
        "--import-package",
        "Package whose functions may be registered by import path; its code runs in the builder. Repeat for more.",
        panel=_PANEL,
        metavar="PACKAGE",
    ),
    ServeOption(
        "invariant",
        bool,
        "--invariant/--no-invariant",
        "Whether the same example gets the same bits at any load, from batch sizes that agree (no).",
        panel=_PANEL,
    ),
)

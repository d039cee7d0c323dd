"""The options of ``rowwise serve``, one for each setting, by the panels of its help."""

from __future__ import annotations

from rowwise.cli.serve_options.builds import BUILDS
from rowwise.cli.serve_options.limits import LIMITS
from rowwise.cli.serve_options.logs import LOGS
from rowwise.cli.serve_options.models import MODELS
from rowwise.cli.serve_options.network import NETWORK
from rowwise.cli.serve_options.option import ServeOption, with_options
from rowwise.cli.serve_options.store import STORE

__all__ = ["SERVE_OPTIONS", "ServeOption", "with_options"]

SERVE_OPTIONS = (*NETWORK, *STORE, *MODELS, *LIMITS, *BUILDS, *LOGS)

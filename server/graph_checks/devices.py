"""Which devices a node may ask for: those of the process that runs it."""

from __future__ import annotations

import re

from server.graph_checks.errors import OpRefused, place, quoted

__all__ = ["check_device"]

_LOCAL = re.compile(
    r"(/job:localhost)?(/replica:0)?(/task:0)?(/(device:)?(CPU|GPU|XLA_CPU|XLA_GPU):(\d{1,3}|\*))?", re.IGNORECASE
)


def check_device(device: str, node: str, function: str) -> None:
    """Errors: OpRefused for a device of another process, or of a kind that is not driven here."""
    if not _LOCAL.fullmatch(device):
        raise OpRefused(
            f"{place(node, function)} is to run on device {quoted(device)}: only this process's CPU and GPUs run it; "
            "save the model without devices (clear_devices=True), or with those of one machine"
        )

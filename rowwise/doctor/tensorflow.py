"""TensorFlow, imported in a process of its own: what is wrong with it can end the process that imports it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from rowwise.doctor.finding import Finding, advice, fine, wrong

__all__ = ["NEEDED", "TensorFlowFacts", "ask_tensorflow", "tensorflow_findings"]

#: One minor version: see pyproject.toml.
NEEDED = "2.21"
#: Tens of seconds where nothing is compiled to byte code yet and the disk is slow.
_TIMEOUT_S = 180.0
#: The version first: what comes after it may fail.
_SCRIPT = """
import json
import tensorflow as tf
print(json.dumps({"version": tf.__version__, "file": tf.__file__}), flush=True)
print(json.dumps({"devices": [each.name for each in tf.config.list_physical_devices("GPU")],
                  "two": float(tf.constant(1.0) + 1.0)}), flush=True)
"""
_TO_DO = f"install it with this Python: {sys.executable} -m pip install 'tensorflow>={NEEDED},<2.22'"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowFacts:
    """What importing it gave. ``version`` empty: it could not be imported, and ``error`` is the reason."""

    version: str = ""
    file: str = ""
    accelerators: tuple[str, ...] = ()
    #: True: an operation gave its result.
    computes: bool = False
    error: str = ""
    #: The signal that ended it, 0 for none.
    ended_by: int = 0


def ask_tensorflow(*, timeout_s: float = _TIMEOUT_S) -> TensorFlowFacts:
    """Import it and compute one sum. Takes seconds."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _SCRIPT], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return TensorFlowFacts(error=f"importing it took more than {timeout_s:.0f} s")
    told: dict[str, object] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            told.update(json.loads(line))
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    devices = told.get("devices")
    return TensorFlowFacts(
        version=str(told.get("version", "")),
        file=str(told.get("file", "")),
        accelerators=tuple(map(str, devices)) if isinstance(devices, list) else (),
        computes=told.get("two") == 2.0,
        error=lines[-1] if done.returncode and lines else "",
        ended_by=max(0, -done.returncode),
    )


def tensorflow_findings(facts: TensorFlowFacts, *, n_device_nodes: int) -> Iterator[Finding]:
    """Yield what is wrong with it. ``n_device_nodes``: the accelerators' nodes in /dev."""
    why = "models are traced, compiled and executed by it: nothing can be built or served"
    if facts.ended_by == signal.SIGILL:
        yield wrong(
            "tensorflow",
            "importing TensorFlow ends with SIGILL: it was compiled for instructions that this processor lacks",
            why=why,
            to_do="use a processor with AVX, or a build of TensorFlow for this one",
        )
    elif not facts.version:
        reason = facts.error or (f"it was ended by signal {facts.ended_by}" if facts.ended_by else "it said nothing")
        yield wrong("tensorflow", f"TensorFlow can't be imported: {reason}", why=why, to_do=_TO_DO)
    elif facts.version.split(".")[:2] != NEEDED.split("."):
        yield wrong(
            "tensorflow",
            f"TensorFlow {facts.version} ({facts.file}), where {NEEDED} is needed",
            why="the vectorizer and the engine use interfaces of it that change from version to version",
            to_do=_TO_DO,
        )
    elif not facts.computes:
        reason = facts.error or (f"signal {facts.ended_by}" if facts.ended_by else "no result")
        yield wrong(
            "tensorflow",
            f"TensorFlow {facts.version} is there and can't compute 1 + 1: {reason}",
            why=why,
            to_do="read the error; a limit of memory or processes of this shell is the usual cause",
        )
    else:
        yield fine("tensorflow", f"TensorFlow {facts.version}")
        yield from _devices(facts.accelerators, n_device_nodes)


def _devices(accelerators: tuple[str, ...], n_device_nodes: int) -> Iterator[Finding]:
    if accelerators:
        yield fine("devices", f"{len(accelerators)} accelerators: {', '.join(accelerators)}")
    elif n_device_nodes:
        yield advice(
            "devices",
            f"/dev has {n_device_nodes} nodes of accelerators, and TensorFlow lists none",
            why="models are served by the processor alone",
            to_do="pip install 'rowwise[gpu]' for the CUDA libraries, and look whether nvidia-smi works for this user",
        )
    else:
        yield fine("devices", "no accelerators: models are served by the processor")

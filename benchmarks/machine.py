"""What the figures of a report were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["describe_machine"]


def describe_machine() -> str:
    """Return processor, devices and versions in one line."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    devices = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
    cores = f"one thread on {_cpu_name()} ({len(os.sched_getaffinity(0))} cores)"
    return f"{', '.join([*devices, cores])}, Python {platform.python_version()}, TensorFlow {tf.__version__}"


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()

"""Which devices engines run on."""

from __future__ import annotations

from typing import Literal

__all__ = ["AUTO", "devices_for", "seen_devices"]

#: One engine for each accelerator that TensorFlow lists, one where there is none.
AUTO: Literal["auto"] = "auto"


def devices_for(engines: int | Literal["auto"]) -> list[str | None]:
    """Return TensorFlow's name of the device of each engine; None leaves placing to TensorFlow.

    More engines than accelerators share them in turn. Imports TensorFlow.
    """
    import tensorflow as tf

    n_accelerators = len(tf.config.list_logical_devices("GPU"))
    n_engines = max(1, n_accelerators) if engines == AUTO else engines
    if not n_accelerators or n_engines == 1:
        return [None] * n_engines
    return [f"/device:GPU:{number % n_accelerators}" for number in range(n_engines)]


def seen_devices() -> list[str]:
    """Return the devices that TensorFlow lists, by its names of them. Imports TensorFlow."""
    import tensorflow as tf

    return [device.name for device in tf.config.list_logical_devices()]

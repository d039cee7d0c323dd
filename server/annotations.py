"""Inputs that a per-example function declares by its annotations: ``def predict(x: tf.TensorSpec([64])): ...``."""

from __future__ import annotations

import inspect
import sys
from typing import Any

__all__ = ["annotated_inputs"]


def annotated_inputs(function: Any) -> dict[str, Any]:
    """Return the tf.TensorSpec of each parameter by its name; empty unless every parameter is annotated with one."""
    tensorflow = sys.modules.get("tensorflow")
    plain = getattr(function, "python_function", function)
    if tensorflow is None or not callable(plain):
        return {}  # nobody can have made a TensorSpec
    try:
        annotations = inspect.get_annotations(plain, eval_str=True)
        names = list(inspect.signature(plain).parameters)
    except Exception:  # noqa: BLE001 - annotations are for others too, and may name what isn't there
        return {}
    found = {name: annotations.get(name) for name in names}
    return found if all(isinstance(spec, tensorflow.TensorSpec) for spec in found.values()) else {}

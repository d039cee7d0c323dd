"""A function whose certificate is compared with what TensorFlow executes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from vectorizer import Length

__all__ = ["ProbeFunction"]


@dataclass(frozen=True, kw_only=True)
class ProbeFunction:
    """``stock`` are op types that TensorFlow's own converter vectorizes, or hides a loop for, instead of ours."""

    function: Callable[..., Any]
    inputs: Mapping[str, tf.TensorSpec]
    stock: tuple[str, ...] = ()
    lengths: Mapping[str, Length] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the function is called in the table."""
        return self.function.__name__

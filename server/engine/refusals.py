"""Which of TensorFlow's errors are an example's fault, and what they say to who sent it."""

from __future__ import annotations

import re

__all__ = ["is_refusal", "refusal_sentence"]

#: Where in the graph it happened: of use to who wrote the model, and told in the log.
_NODE = re.compile(r"\s*\[\[\{\{node .*", re.DOTALL)
_MAX_CHARS = 300


def is_refusal(error: Exception) -> bool:
    """Return True if the graph raised over a value: an index, a divisor, a check, a number that is none."""
    import tensorflow as tf  # loaded long since: something has run

    return isinstance(error, tf.errors.InvalidArgumentError)


def refusal_sentence(error: Exception) -> str:
    """Return what was wrong with the value, without the graph's inner names."""
    text = _NODE.sub("", str(getattr(error, "message", error))).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    return first if len(first) <= _MAX_CHARS else first[: _MAX_CHARS - 3] + "..."

"""Where in the user's code the op stands that an op of a backward pass is the gradient of."""

from __future__ import annotations

import re
from typing import Any

from vectorizer.derivatives.inline import Inlined
from vectorizer.source import SourceLines
from vectorizer.trace import ExampleFunction

__all__ = ["BackwardPlaces"]

#: TensorFlow makes the gradient of an op in a scope that is named after it.
_GRADIENT_SCOPE = re.compile(r"(?:^|/)gradients(?:_\d+)?/(.+?)_grad(?:_\d+)?/")
_OWN_SCOPE = re.compile(r"/pfor/.*")


class BackwardPlaces(SourceLines):
    """The places of the copied ops of a function, and of those that its gradient is made of."""

    def __init__(self, function: ExampleFunction, copied: Inlined) -> None:
        super().__init__()
        self._function = function
        self._originals = copied.originals

    def get(self, op: Any) -> str | None:
        """Return the place of a copied op's original; for an op of the backward pass, ``gradient of file.py:41``."""
        # What is made of an op in vectorizing it is in a scope that is named after it.
        name = _OWN_SCOPE.sub("", getattr(op, "name", ""))
        scope = _GRADIENT_SCOPE.search(name)
        original = self._originals.get(scope[1] if scope else name)
        if original is None:
            return None
        place = self._function.where(original)
        return f"gradient of {place}" if scope else place

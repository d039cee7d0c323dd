"""What is fuzzed: something that reads bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.fuzz_codecs.mutation import mutated

__all__ = ["Target"]


class Target:
    """Something that reads bytes."""

    name = ""

    def corpus(self) -> Sequence[bytes]:
        """Valid inputs."""
        raise NotImplementedError

    def draw(self, random_: random.Random, corpus: Sequence[bytes]) -> bytes:
        """Make an input."""
        return mutated(random_, corpus)

    def read(self, data: bytes) -> str:
        """Read an input; return what came of it: "read", or the name of a declared error. It raises nothing."""
        raise NotImplementedError

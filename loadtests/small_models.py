"""Functions of one example that are built in seconds and checked without TensorFlow: what faults are tried on.

Every number is small and whole, so that an answer is right to the last digit or wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["BUILD", "Question", "negated", "question", "shares", "tripled"]

#: What registers each function, but for its import path.
BUILD: dict[str, dict[str, Any]] = {
    "tripled": {"inputs": {"x": {"dtype": "float32", "shape": [3]}}, "buckets": [1, 8]},
    "negated": {"inputs": {"x": {"dtype": "float32", "shape": [3]}}, "buckets": [1, 8]},
    "shares": {"inputs": {"x": {"dtype": "int32", "shape": []}}, "buckets": [1, 4, 16]},
}


def tripled(x: tf.Tensor) -> tf.Tensor:
    """Return three times the vector. Shapes: [3] to [3]."""
    return x * 3.0


def negated(x: tf.Tensor) -> tf.Tensor:
    """Return the vector with the other sign: a version that nobody can take for ``tripled``."""
    return -x


def shares(x: tf.Tensor) -> tf.Tensor:
    """Divide 840 by a whole number; zero is an example that is refused. Shapes: [] to []."""
    return 840 // x


@dataclass(frozen=True, slots=True)
class Question:
    """A request and the answers that are right: any of ``answers``, or one of the statuses ``errors``."""

    path: str
    body: bytes
    answers: tuple[Any, ...] = ()
    errors: frozenset[int] = field(default_factory=frozenset)

    def accepts(self, body: bytes) -> bool:
        """Return whether a body of status 200 is right."""
        try:
            predictions = orjson.loads(body)["predictions"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return False
        return any(predictions == answer for answer in self.answers)


def question(number: int, model: str, *functions: str, n_rows: int | None = None) -> Question:
    """Return request ``number`` to a model that serves one of ``functions``; no two are alike.

    ``n_rows``: of a request of vectors; left out, 1 to 4. Every tenth request to ``shares`` has a bad example among
    good ones, and is to be refused as a whole.
    """
    path = f"/v1/models/{model}:predict"
    if functions == ("shares",):
        divisors = [number % 97 + step + 1 for step in range(number % 3 + 1)]
        if number % 10 == 7:
            return Question(path, _body([*divisors, 0]), errors=frozenset({400}))
        return Question(path, _body(divisors), answers=([840 // divisor for divisor in divisors],))
    rows = [[float(number % 100_003 + row), 1.0, -float(row)] for row in range(n_rows or number % 4 + 1)]
    factors = {"tripled": 3.0, "negated": -1.0}
    return Question(
        path,
        _body(rows),
        answers=tuple([[value * factors[function] for value in row] for row in rows] for function in functions),
    )


def _body(instances: list[Any]) -> bytes:
    return orjson.dumps({"instances": instances})

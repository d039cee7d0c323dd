"""Results of branches that differ in length: chosen between as padded tensors of one size, and their lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from vectorizer._pfor import differing, stacked, wrap, wrap_differing
from vectorizer.differing import Differing, resized

__all__ = ["Outcome", "outcome_of"]


@dataclass(frozen=True, slots=True)
class _Padded:
    """One output: the size of each dimension in all branches, and which dimensions differ."""

    dtype: tf.DType
    sizes: tuple[int, ...]
    differs: tuple[bool, ...]

    def specs(self) -> list[tf.TensorSpec]:
        return [
            tf.TensorSpec(self.sizes, self.dtype),
            *(tf.TensorSpec([], tf.int32) for is_so in self.differs if is_so),
        ]

    def apart(self, value: Any, pfor_input: Any) -> list[Any]:
        given = differing(value) or Differing(stacked(value, pfor_input), (None,) * len(self.sizes))
        rows = tf.shape(given.dense)[:1]
        dense = given.dense
        for dim, size in enumerate(self.sizes):
            dense = resized(dense, dim + 1, size)
        lengths = [tf.broadcast_to(given.size(dim), rows) for dim, is_so in enumerate(self.differs) if is_so]
        return [wrap(tensor, stacked=True) for tensor in (dense, *lengths)]

    def together(self, dense: Any, *lengths: Any) -> Any:
        rest = iter(lengths)
        return wrap_differing(Differing(dense.t, tuple(next(rest).t if is_so else None for is_so in self.differs)))


class Outcome:
    """How the outputs of branches are chosen between: tensors of one shape for each row, in their place."""

    def __init__(self, outputs: Sequence[tf.Tensor], padded: Sequence[_Padded | None]) -> None:
        self._outputs = outputs
        self._padded = padded

    @property
    def specs(self) -> list[Any]:
        """What is chosen between: for each tensor its shape in one example and its dtype."""
        found: list[Any] = []
        for output, padded in zip(self._outputs, self._padded, strict=True):
            found.extend([output] if padded is None else padded.specs())
        return found

    @property
    def plain(self) -> list[int | None]:
        """For each of these tensors, which output it is as it came; None for a part of one."""
        found: list[int | None] = []
        for index, padded in enumerate(self._padded):
            found.extend([index] if padded is None else [None] * len(padded.specs()))
        return found

    def apart(self, values: Sequence[Any], pfor_input: Any) -> list[Any]:
        """Take a branch's results apart. Values are wrapped."""
        found: list[Any] = []
        for value, padded in zip(values, self._padded, strict=True):
            found.extend([value] if padded is None else padded.apart(value, pfor_input))
        return found

    def together(self, values: Sequence[Any]) -> list[Any]:
        """Undo ``apart`` for what was chosen."""
        rest = iter(values)
        return [
            next(rest) if padded is None else padded.together(*(next(rest) for _ in padded.specs()))
            for padded in self._padded
        ]


def outcome_of(outputs: Sequence[tf.Tensor], made: Sequence[Sequence[Any]]) -> Outcome | None:
    """Return how to choose between what branches make of the outputs; None if a padded size is not known.

    Errors: NotImplementedError if that is so of a value of differing length.
    """
    padded: list[_Padded | None] = []
    for index, output in enumerate(outputs):
        values = [results[index] for results in made]
        if output.shape.is_fully_defined() or output.dtype == tf.variant:
            padded.append(None)
            continue
        shapes = [value.t.shape[1:] if value.is_stacked else value.t.shape for value in values]
        if any(not shape.is_fully_defined() for shape in shapes) or len({shape.rank for shape in shapes}) != 1:
            if any(differing(value) for value in values):
                raise NotImplementedError(
                    "a branch gives a value whose length differs from example to example and has no known bound; cut "
                    "it to a fixed size, or reduce it, in the branch"
                )
            return None
        sizes = tuple(max(each) for each in zip(*(shape.as_list() for shape in shapes), strict=True))
        lengths = [value.lengths for value in map(differing, values) if value is not None]
        differs = tuple(
            any(own[dim] is not None for own in lengths) or any(shape[dim] != size for shape in shapes)
            for dim, size in enumerate(sizes)
        )
        padded.append(_Padded(output.dtype, sizes, differs))
    return Outcome(outputs, padded)

"""Cutting an answer's rows to the sizes that the graph tells for each of them: no padding leaves the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from server.signature import ModelSignature

__all__ = ["Answers", "Outputs"]

#: One value for each output: its rows stacked, or where they differ in shape a list of them.
Outputs = list[np.ndarray[Any, Any] | list[np.ndarray[Any, Any]]]


class Answers:
    """What a compiled graph answers, as the outputs that callers get."""

    def __init__(self, signature: ModelSignature) -> None:
        places = {name: len(signature.outputs) + number for number, name in enumerate(signature.length_outputs)}
        #: For each output: by dimension, where among the graph's answers the true sizes are; None if it has none.
        self._told = [
            tuple(places.get(dim) if isinstance(dim, str) else None for dim in tensor.shape)
            for tensor in signature.outputs
        ]
        self._is_told = bool(places)
        self.names = [*(tensor.name for tensor in signature.outputs), *places]

    def cut(self, arrays: list[np.ndarray[Any, Any]], n_rows: int) -> Outputs:
        """Return the signature's outputs of a graph's answer to the first ``n_rows``.

        Shapes: arrays in the order of ``names``, ``[bucket, *s]`` each.
        """
        if not self._is_told:
            return arrays  # type: ignore[return-value]
        cut: Outputs = []
        for array, told in zip(arrays, self._told, strict=False):
            if any(place is not None for place in told):
                sizes = [None if place is None else arrays[place] for place in told]
                cut.append([array[_reach(sizes, row)] for row in range(n_rows)])
            else:
                cut.append(array)
        return cut


def _reach(sizes: Sequence[np.ndarray[Any, Any] | None], row: int) -> tuple[Any, ...]:
    return (row, *(slice(None) if size is None else slice(int(size[row])) for size in sizes))

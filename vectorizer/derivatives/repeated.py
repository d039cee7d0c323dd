"""Every element of a Jacobian at once, each with a forward pass of its own: where one can't be shared.

Theory of operation. What a loop or branch of a forward pass keeps for its gradient is opaque to whoever shares it
between the elements: TensorFlow's own list, of unknown length. To pop from it will do for a Jacobian. But the gradient
of that popping, which a Hessian needs, and that of reading a list's element make lists alike, and write to them what
differs from element to element. So there the elements become further rows: an example is repeated for each element,
and the forward pass of all of them is vectorized with the backward pass, in one go. It costs what the forward pass
costs, once for each element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from vectorizer._pfor import Converter, convert_rows
from vectorizer.conversions import ConversionLog
from vectorizer.derivatives.basis import each_element
from vectorizer.trace import ExampleFunction

__all__ = ["Repeated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """A derivative by repetition. ``pull`` takes an example and a cotangent for each of ``targets``."""

    pull: ExampleFunction
    targets: tuple[tf.TensorSpec, ...]
    results: tuple[tf.TensorSpec, ...]
    at_once: int

    def convert(
        self, example: Sequence[tf.Tensor], rows: int, converters: Mapping[str, Converter], log: ConversionLog
    ) -> list[tf.Tensor]:
        """Compute the derivative of ``rows`` examples.

        Shapes: example ``[rows, *x]`` for each input of shape x; results ``[rows, *y, *s]``, y by y, s by s.
        """

        def pull(cotangents: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            chunk = cotangents[0].shape[0]
            arguments = [
                tf.reshape(tf.tile(value[tf.newaxis], [chunk, *[1] * value.shape.rank]), [-1, *value.shape[1:]])
                for value in example
            ]
            arguments += [tf.repeat(cotangent, rows, axis=0) for cotangent in cotangents]
            sized = [tf.ensure_shape(value, [chunk * rows, *value.shape[1:]]) for value in arguments]
            made = convert_rows(self.pull.concrete, sized, rows=chunk * rows, converters=converters, log=log)
            return [
                tf.reshape(value, [chunk, rows, *result.shape])
                for value, result in zip(made, self.results, strict=True)
            ]

        of_rows = [tf.TensorSpec([rows, *result.shape], result.dtype) for result in self.results]
        pulled = each_element(pull, self.targets, of_rows, at_once=self.at_once)
        sizes = [target.shape.num_elements() for target in self.targets]
        by_result = [tf.split(value, sizes) for value in pulled]
        return [
            tf.reshape(
                tf.transpose(blocks[number], [1, 0, *range(2, blocks[number].shape.rank)]),
                [rows, *target.shape, *result.shape],
            )
            for number, target in enumerate(self.targets)
            for blocks, result in zip(by_result, self.results, strict=True)
        ]

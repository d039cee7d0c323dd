"""The reference of every derivative: TensorFlow's own gradient, one element at a time, in a loop.

Nothing of the vectorizer is in it: the function of one example, at its true lengths, a tape, and a loop that pulls
back one element of the output after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.derivatives.choice import Choice
from vectorizer.derivatives.declaration import COTANGENT
from vectorizer.trace import ExampleFunction

__all__ = ["LoopedDerivative"]


class LoopedDerivative:
    """A derivative of one example, computed slowly. Takes an example of the function, at its own lengths."""

    def __init__(self, function: ExampleFunction, choice: Choice) -> None:
        self._function = function
        self._choice = choice
        self._once = tf.function(self._pull_once, autograph=False)
        self._rows = tf.function(self._each_row, autograph=False)
        if choice.kind in ("jacobian", "hessian"):
            index = tf.TensorSpec([], tf.int32)
            #: Traced by itself: TensorFlow can't differentiate a branch on a tape that is in a loop. Nor at all for the
            #: others, which need no second derivative of ops that may have none.
            self._row = tf.function(self._pull_row, autograph=False).get_concrete_function(
                index, index, *function.inputs.values()
            )

    def __call__(self, example: Mapping[str, np.ndarray], answer: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the derivative's results in their order. ``answer`` is the output for this example.

        Errors: what TensorFlow raises.
        """
        inputs = [tf.constant(example[name], spec.dtype) for name, spec in self._function.inputs.items()]
        if self._choice.kind in ("gradient", "vjp"):
            cotangent = example[COTANGENT] if self._choice.kind == "vjp" else np.ones_like(answer)
            return tuple(value.numpy() for value in self._once(tf.constant(cotangent), *inputs))
        shapes = [answer.shape]
        if self._choice.kind == "hessian":
            shapes = [self._shape(source, example) for source in self._choice.sources]
        results = []
        for number, shape in enumerate(shapes):
            n_elements = int(np.prod(shape))
            stacked: Sequence[Any] = (
                self._rows(tf.constant(number), tf.constant(n_elements), *inputs)
                if n_elements
                else [np.zeros(0, s.dtype.as_numpy_dtype) for s in self._choice.sources]
            )
            for value, source in zip(stacked, self._choice.sources, strict=True):
                results.append(np.reshape(np.asarray(value), (*shape, *self._shape(source, example))))
        return tuple(results)

    @staticmethod
    def _shape(source: Any, example: Mapping[str, np.ndarray]) -> tuple[int, ...]:
        return example[source.name].shape if source.variable is None else tuple(source.dims)

    def _pull_once(self, cotangent: tf.Tensor, *inputs: tf.Tensor) -> list[tf.Tensor]:
        sources = self._sources(inputs)
        with self._watching(sources) as tape:
            output = self._output(inputs)
        return self._dense(tape, output, sources, cotangent)

    def _pull_row(self, number: tf.Tensor, index: tf.Tensor, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Pull back one element: number ``index`` of the output, or of the gradient by source number ``number``."""
        sources = self._sources(inputs)
        with self._watching(sources) as tape:
            target = self._output(inputs) if self._choice.kind == "jacobian" else self._gradient(number, inputs)
            element = tf.reshape(target, [-1])[index]
        return self._dense(tape, element, sources, None)

    def _each_row(self, number: tf.Tensor, n_elements: tf.Tensor, *inputs: tf.Tensor) -> list[tf.Tensor]:
        def step(index: tf.Tensor, *written: Any) -> tuple[Any, ...]:
            row = self._row(number, index, *inputs)
            return (index + 1, *(array.write(index, value) for array, value in zip(written, row, strict=True)))

        arrays = [
            tf.TensorArray(source.dtype, size=n_elements, infer_shape=False, element_shape=source.shape)
            for source in self._sources(inputs)
        ]
        _, *filled = tf.while_loop(lambda index, *_: index < n_elements, step, [tf.constant(0), *arrays])
        return [array.stack() for array in filled]

    def _gradient(self, number: tf.Tensor, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        sources = self._sources(inputs)
        with self._watching(sources) as tape:
            output = self._output(inputs)
        gradients = self._dense(tape, output, sources, None)
        if len(gradients) == 1:
            return gradients[0]
        # One branch is taken: the elements of source number ``number``, as one flat list of the widest dtype.
        widest = max((source.dtype for source in self._choice.sources), key=lambda dtype: dtype.size)
        flat = [tf.cast(tf.reshape(gradient, [-1]), widest) for gradient in gradients]
        return tf.switch_case(number, [lambda value=value: value for value in flat])

    def _output(self, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        return self._function.concrete(*inputs)[self._choice.output_index]

    def _sources(self, inputs: Sequence[tf.Tensor]) -> list[Any]:
        given = dict(zip(self._function.input_names, inputs, strict=True))
        return [given[s.name] if s.variable is None else s.variable for s in self._choice.sources]

    @staticmethod
    @contextmanager
    def _watching(sources: Sequence[Any]) -> Iterator[Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(sources))
            yield tape

    @staticmethod
    def _dense(tape: Any, target: tf.Tensor, sources: Sequence[Any], cotangent: tf.Tensor | None) -> list[tf.Tensor]:
        pulled = tape.gradient(
            target, list(sources), output_gradients=cotangent, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return [tf.convert_to_tensor(value) for value in pulled]

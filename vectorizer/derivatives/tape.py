"""The forward pass of one example, and how its results are pulled back.

Theory of operation. The traced function is copied once into the graph that is being built (``inline``), so that a
restored SavedModel, a Keras model and a plain function are all the same here, and TensorFlow differentiates that
graph op by op. Pulling back is a graph of its own: it takes a cotangent (one number for each element that is
differentiated) and captures what it needs of the forward pass. Whoever runs it for many cotangents shares that one
forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from vectorizer.derivatives.choice import Choice
from vectorizer.derivatives.inline import Inlined, inline
from vectorizer.trace import ExampleFunction

__all__ = ["Recorded", "record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A forward pass: ``targets`` are pulled back to ``sources``, tensors both (a variable's is its handle).

    ``shapes`` are those of the sources, of their variables' values if they are handles; so ``dtypes``.
    """

    targets: tuple[tf.Tensor, ...]
    sources: tuple[tf.Tensor, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[tf.DType, ...]

    def pull(self, cotangents: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """Return the product of the cotangents with the Jacobian: one dense tensor for each source.

        Shapes: a cotangent has its target's shape, a result its source's; a source that the targets do not depend on
            gets zeros.
        """
        pulled = tf.gradients(list(self.targets), list(self.sources), grad_ys=list(cotangents))
        return tuple(
            tf.zeros(shape, dtype) if value is None else _dense(value, shape)
            for value, shape, dtype in zip(pulled, self.shapes, self.dtypes, strict=True)
        )

    def pullback(self) -> Any:
        """Return ``pull`` as a traced function that captures the forward pass."""
        specs = [tf.TensorSpec(target.shape, target.dtype) for target in self.targets]

        def pulled(*cotangents: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return self.pull(cotangents)

        return tf.function(pulled, autograph=False).get_concrete_function(*specs)


def record(
    function: ExampleFunction,
    choice: Choice,
    example: Sequence[tf.Tensor],
    *,
    shape: Sequence[int],
    copied: Inlined,
) -> Recorded:
    """Run the function; the targets are its output, or for a Hessian the gradient of it.

    Shapes: ``shape`` is the output's, which the graph may not say.
    """
    graph = tf.compat.v1.get_default_graph()
    captured = [graph.capture(tensor) for tensor in function.concrete.captured_inputs]
    given = dict(zip(function.input_names, example, strict=True))
    # A copy of its own for each input: what is differentiated by must be on the way to the output.
    outputs = inline(function.graph, [*example, *captured], copied)
    output = tf.ensure_shape(outputs[choice.output_index], shape)
    sources = tuple(given[s.name] if s.variable is None else graph.capture(s.variable.handle) for s in choice.sources)
    recorded = Recorded(
        targets=(output,),
        sources=sources,
        shapes=tuple(
            tuple(given[s.name].shape) if s.variable is None else tuple(s.variable.shape) for s in choice.sources
        ),
        dtypes=tuple(source.dtype for source in choice.sources),
    )
    if choice.kind != "hessian":
        return recorded
    gradient = recorded.pull([tf.ones_like(output)])
    return Recorded(targets=gradient, sources=sources, shapes=recorded.shapes, dtypes=recorded.dtypes)


def _dense(value: Any, shape: tuple[int, ...]) -> tf.Tensor:
    """Return a gradient as a tensor: that of a gather comes as rows and their indices."""
    return tf.ensure_shape(tf.convert_to_tensor(value), shape)

"""The derivatives of one function in one call, as in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from vectorizer.derivatives.declaration import Derivative
from vectorizer.vectorize import vectorize
from vectorizer.vectorized import Vectorized

__all__ = ["gradient", "hessian", "jacobian", "vjp"]


def gradient(
    fn: Callable[..., Any],
    *,
    inputs: Mapping[str, tf.TensorSpec],
    output: str | None = None,
    wrt: Any = None,
    **options: Any,
) -> Vectorized:
    """Compile the gradient of a scalar output, for each of any number of examples.

    ``options`` are those of ``vectorize``. With a variable as ``wrt``: per-example gradients of a loss.
    Shapes: ``[n, *x]`` for ``wrt`` of shape x. Errors: those of ``vectorize``.
    """
    return _only(fn, inputs, options, Derivative(kind="gradient", output=output, wrt=wrt))


def vjp(
    fn: Callable[..., Any],
    *,
    inputs: Mapping[str, tf.TensorSpec],
    output: str | None = None,
    wrt: Any = None,
    **options: Any,
) -> Vectorized:
    """Compile the product of a cotangent with the Jacobian; the cotangent is a further input, ``cotangent``.

    Shapes: ``cotangent`` ``[n, *y]`` for an output of shape y; the result ``[n, *x]``. Errors: those of ``vectorize``.
    """
    return _only(fn, inputs, options, Derivative(kind="vjp", output=output, wrt=wrt))


def jacobian(
    fn: Callable[..., Any],
    *,
    inputs: Mapping[str, tf.TensorSpec],
    output: str | None = None,
    wrt: Any = None,
    max_parallel: int | None = None,
    **options: Any,
) -> Vectorized:
    """Compile the Jacobian of an output, for each of any number of examples.

    Shapes: ``[n, *y, *x]`` for an output of shape y and ``wrt`` of shape x. Errors: those of ``vectorize``.
    """
    return _only(fn, inputs, options, Derivative(kind="jacobian", output=output, wrt=wrt, max_parallel=max_parallel))


def hessian(
    fn: Callable[..., Any],
    *,
    inputs: Mapping[str, tf.TensorSpec],
    output: str | None = None,
    wrt: Any = None,
    max_parallel: int | None = None,
    **options: Any,
) -> Vectorized:
    """Compile the second derivatives of a scalar output, for each of any number of examples.

    Shapes: ``[n, *x, *x']`` for each pair of ``wrt``. Errors: those of ``vectorize``.
    """
    return _only(fn, inputs, options, Derivative(kind="hessian", output=output, wrt=wrt, max_parallel=max_parallel))


def _only(
    fn: Callable[..., Any], inputs: Mapping[str, tf.TensorSpec], options: dict[str, Any], derivative: Derivative
) -> Vectorized:
    made = vectorize(fn, inputs=inputs, derivatives=[derivative], **options)
    return next(iter(made.derivatives.values()))
